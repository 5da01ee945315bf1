"""Operators that move data."""
