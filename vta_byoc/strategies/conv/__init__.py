"""Convolution and matrix products."""
