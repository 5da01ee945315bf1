"""Tools on Relax modules, and attributes that several stages read."""
