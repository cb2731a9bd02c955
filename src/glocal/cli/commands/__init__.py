"""Commands with a file of their own: nothing heavy is imported until one runs."""
