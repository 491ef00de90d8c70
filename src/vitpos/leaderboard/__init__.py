"""The public benchmark: one frozen protocol, one file per entry, and a ranking with intervals."""
