"""Programs as values: layers, relocations, DRAM arenas, files."""
