"""Federations: the clients' data, how it is partitioned and split, and where it comes from."""
