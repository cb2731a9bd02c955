"""What everything else stands on: trees, random keys, errors, specs, checks, progress."""
