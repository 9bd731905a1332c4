"""A Flower app that trains digits with fedalpha."""
