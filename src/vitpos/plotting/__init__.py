"""Draws figures from plain arrays and numbers with matplotlib."""
