"""Other people's models: their weights in ours, and their checkpoints read and recognised."""
