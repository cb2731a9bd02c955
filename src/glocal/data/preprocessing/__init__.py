"""Preprocessing: from the columns of a table to the features of a model, fitted and saved."""

from glocal.data.preprocessing.fitted import Preprocessing

__all__ = ["Preprocessing"]
