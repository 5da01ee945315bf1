"""Strategies, one module each; the table is :mod:`vta_byoc.strategy`."""
