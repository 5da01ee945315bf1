"""What quantization did to a model."""
