"""What clients can do to a server, and what it can do about it: bounds, privacy, faults on purpose."""
