"""Consumers in the tiles of their producer."""
