"""The same methods between machines: a server that has no data, and nodes that have their own."""
