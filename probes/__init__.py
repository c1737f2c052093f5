"""The observer's probes: symbol table, eBPF programs, attach and ring reader."""
