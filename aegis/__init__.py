"""Aegis keeps a long training run alive on hardware that breaks."""

__version__ = "0.1.0"
