"""The terminal interface, `transit top` (not written yet)."""
