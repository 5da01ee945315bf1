"""A softmax that stands alone, along an axis of positions."""
