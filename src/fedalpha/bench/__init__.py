"""Benches: long measurements behind ``fedalpha bench``, whose tables are kept under ``docs/results``."""
