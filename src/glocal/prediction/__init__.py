"""A client's model in use: raw rows in, predictions out; saved, loaded and exported."""
