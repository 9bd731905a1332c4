"""A Flower app of NumPy alone: client i pulls the model halfway to its own target."""
