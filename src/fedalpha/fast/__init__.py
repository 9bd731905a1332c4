"""Loops and layers that compute the same in less time, and the order of sums."""
