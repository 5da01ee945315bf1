"""Model files to float Relax in one form."""
