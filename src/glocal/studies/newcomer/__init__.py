"""A client that joins when training is over."""
