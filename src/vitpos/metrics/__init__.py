"""Metrics of predictions and images, and statistics of repeated runs."""
