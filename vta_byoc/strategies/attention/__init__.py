"""Attention of tokens: products by the GEMM core, softmax by the ALU."""
