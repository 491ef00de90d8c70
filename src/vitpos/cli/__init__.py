"""The command line: one module per command, with progress on standard error and tables on standard output."""
