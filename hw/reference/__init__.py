"""Independent second opinions of the machine, slow and obvious."""
