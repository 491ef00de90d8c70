"""Runs experiments: trains and evaluates their cells (a cell is one training), stores the results and makes tables."""
