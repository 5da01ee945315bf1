"""Test networks written from code: numpy and onnx only, the same bytes every time."""
