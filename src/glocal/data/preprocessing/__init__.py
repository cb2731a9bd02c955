"""Preprocessing: from the columns of a table to the features of a model, fitted and saved."""
