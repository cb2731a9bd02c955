"""Methods fitted to a federation and set against each client's local baseline."""
