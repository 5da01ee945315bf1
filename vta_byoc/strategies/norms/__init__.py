"""Normalizations of tokens: sums by the GEMM core, everything else by the ALU."""
