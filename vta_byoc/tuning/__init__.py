"""Schedules as values: chosen, pinned, kept in a log."""
