"""The simulator that TVM compiles, and what runs it."""
