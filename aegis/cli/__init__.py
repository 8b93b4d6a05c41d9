"""The one command, `aegis`."""
