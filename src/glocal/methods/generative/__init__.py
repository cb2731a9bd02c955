"""Synthetic data that stands for everybody's: how methods make it."""
