"""Mathematics that several methods share."""
