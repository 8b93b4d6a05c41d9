"""What decides. Pure: events go in, actions come out, and only the `Cluster` in hand changes."""
