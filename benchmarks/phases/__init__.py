"""What the losses of a live federation cost, on a real SuperLink with real SuperNodes."""
