"""Samples, and the ranges that they show."""
