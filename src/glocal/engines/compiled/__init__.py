"""Steps compiled and run as programs of fixed shapes."""
