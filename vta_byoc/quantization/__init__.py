"""Float Relax to the integer dialect; the entry is :mod:`vta_byoc.quantize`."""
