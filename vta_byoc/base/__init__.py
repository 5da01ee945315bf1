"""What every room may use: limits of memory, array files, digits, text, errors."""
