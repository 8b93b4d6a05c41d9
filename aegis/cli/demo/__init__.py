"""`aegis demo`: a training job survives three faults on this machine, no GPU needed.

It starts the product's own programs, breaks things under them, and tells nobody: what the
controller knows it has from its agents and launchers.
"""
