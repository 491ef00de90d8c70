"""Models of other libraries: their weights in our models, and their checkpoints, read safely and recognized."""
