"""Bundles: a compiled model as a folder that the C runtime runs without TVM."""
