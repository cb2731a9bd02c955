"""Clients' states: rows of one store, on the device, in host memory or on disk."""
