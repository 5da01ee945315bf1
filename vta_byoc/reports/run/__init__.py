"""What a run or a compiled model took."""
