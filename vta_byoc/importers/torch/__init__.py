"""PyTorch programs."""
