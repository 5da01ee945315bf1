"""Relay operators as Relax: one small function each, and what their attributes are by default."""
