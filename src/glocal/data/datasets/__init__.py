"""Known data sets: where they come from, how they are read and checked."""
