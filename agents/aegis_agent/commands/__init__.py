"""Commands that look and decode: `aegis scan`, `classify`, `afid` and `cper`."""
