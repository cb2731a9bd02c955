"""The command line: a command checks its arguments, calls one function, shows the result."""
