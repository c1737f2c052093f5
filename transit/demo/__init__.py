"""The demonstration: a small GPT trained on the simulated GPU, without and with Transit."""
