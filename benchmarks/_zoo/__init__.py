"""Published networks as PyTorch modules, their inputs, their exports and what is measured."""
