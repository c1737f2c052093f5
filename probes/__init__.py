"""The observer's probes: eBPF programs, attach and ring reader (not written yet)."""
