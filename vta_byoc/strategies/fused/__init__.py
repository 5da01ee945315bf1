"""Fused consumers: operators computed in the tiles of their producer."""
