"""Runs experiments: trains and evaluates their cells, stores the results and makes tables.

A *cell* is one training: a combination of data, model, encoding, recipe and seed, with the evaluations of the trained
model. A position in the grid of patches is called a *grid cell* instead.
"""
