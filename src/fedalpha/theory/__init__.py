"""The guarantees, computed and checked."""
