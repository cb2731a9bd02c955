"""The same methods between machines: where the data is, nothing but messages leaves."""
