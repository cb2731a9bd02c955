"""Federations: the clients' data, how it is partitioned and split, and where it comes from."""

from glocal.data.datasets.registry import list_datasets
from glocal.data.federation import ClientData, Federation, federation
from glocal.data.loading import load
from glocal.data.partition import list_partitions
from glocal.data.split import Split

__all__ = [
    "ClientData",
    "Federation",
    "Split",
    "federation",
    "list_datasets",
    "list_partitions",
    "load",
]
