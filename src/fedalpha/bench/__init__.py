"""Benches: long comparisons that are commands of their own, with stored results."""
