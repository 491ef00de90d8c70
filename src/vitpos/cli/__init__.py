"""The command line; progress is shown on standard error, tables on standard output."""
