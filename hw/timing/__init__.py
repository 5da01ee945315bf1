"""Cycles of a Program: the timing model."""
