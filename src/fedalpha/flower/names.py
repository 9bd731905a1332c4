"""Names of what fedalpha adds to messages."""

from __future__ import annotations

OURS = "fedalpha."
"""The names of these records begin with this."""
EXTRAS = f"{OURS}extras"
"""The ArrayRecord of what is sent besides a model: control variates …"""
STATE = f"{OURS}state"
"""The ArrayRecord with the arrays of a client's state."""
TOLD = f"{OURS}told"
"""The ConfigRecord with the rest of it, under the following keys."""
TREE, COMMITTED, FRESH = "tree", "committed", "fresh"
"""The state as text, which refers to the arrays; the last round whose state counts; whether a node had lost it."""
BATCH = f"{OURS}batch"
"""In the configuration of a loss query: the number of samples from which the loss is estimated."""
