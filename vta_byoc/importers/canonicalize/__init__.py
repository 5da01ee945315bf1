"""What exporters write around operators, rewritten to one form."""
