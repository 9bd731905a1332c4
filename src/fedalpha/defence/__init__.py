"""What clients can do to a server, and the protection against it: bounds, privacy, and faults for tests."""
