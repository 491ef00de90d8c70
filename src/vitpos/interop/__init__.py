"""Weights of other people's models in ours."""
