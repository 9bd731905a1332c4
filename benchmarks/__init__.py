"""Measurements of fedalpha: its speed, its reliability, its methods.

They are run from a checkout with ``python -m benchmarks``; they are not part of the installed package.
"""
