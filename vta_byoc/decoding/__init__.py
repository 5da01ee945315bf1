"""Decoding: a quantized decoder as two programs on one cache of keys and values."""
