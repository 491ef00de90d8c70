"""Runs experiments: trains and evaluates their cells, stores the results in folders and summarizes them in tables."""
