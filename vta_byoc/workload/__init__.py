"""What a strategy needs to know of an operator, and how its tensors are packed."""
