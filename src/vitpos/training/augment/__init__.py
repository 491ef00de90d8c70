"""Augmentations of training batches: changes of uint8 images, of normalized inputs and of targets."""
