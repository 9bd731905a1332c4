"""A Flower app of NumPy alone, whose clients send their updates through secure sums."""
