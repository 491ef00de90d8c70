"""Training: the recipe, the schedule and the loop."""
