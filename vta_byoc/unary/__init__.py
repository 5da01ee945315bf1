"""Functions of one int8 value as programs of the vector ALU, searched for and proven."""
