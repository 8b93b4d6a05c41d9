"""The parts of bench/recovery.py."""
