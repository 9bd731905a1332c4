"""Measurements of fedalpha: its speed, its reliability, its methods.

They are run from a checkout, ``python -m benchmarks --help``, and are no part of what users install.
"""
