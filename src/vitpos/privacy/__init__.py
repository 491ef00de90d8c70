"""Attacks that reconstruct an image from its shared gradient: two closed forms and gradient matching."""
