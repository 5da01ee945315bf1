"""Where operators run and where tensors live."""
