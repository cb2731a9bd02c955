"""Labelled examples that stand for everybody's data: how they are made, and how they are judged."""
