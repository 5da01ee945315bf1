"""Strategies by kind of operator; the table is :mod:`vta_byoc.strategy`."""
