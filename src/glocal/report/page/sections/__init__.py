"""The parts of a page, a file for each kind; one that a run has nothing for is None."""
