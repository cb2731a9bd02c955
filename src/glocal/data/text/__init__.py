"""Text: what somebody wrote or said, in order, as a federation of its authors."""
