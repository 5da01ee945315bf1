"""Passes between packing and the executable."""
