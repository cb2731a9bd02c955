"""Federated learning in which every participant is better off."""

__version__ = "0.1.0"
