"""Measures what a model or checkpoint learned about position; returns numbers and figures as data, and draws nothing."""
