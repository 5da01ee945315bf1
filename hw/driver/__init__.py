"""Devices as a driver sees them: memory, registers, and the calls between them."""
