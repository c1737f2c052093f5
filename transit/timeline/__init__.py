"""What records mean: pure functions over arrays. No clock, no I/O, no probes that run."""
