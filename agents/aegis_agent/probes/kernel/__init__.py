"""The kernel log: what its lines mean, one by one and together."""
