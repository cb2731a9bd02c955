"""The rounds: the server's half, sampling, checkpoints, clients' states, attacks."""
