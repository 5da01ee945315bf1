"""Running executables."""
