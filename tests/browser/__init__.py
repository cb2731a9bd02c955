"""What only a browser can tell; ``make test-browser`` runs it."""
