"""Transit: CPU memory as an extension of GPU memory for unmodified PyTorch training."""

__version__ = "0.1.0"
