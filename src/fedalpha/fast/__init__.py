"""Faster versions of loops and layers, and the order of sums."""
