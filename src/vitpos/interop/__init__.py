"""Interoperability: loads timm's weights into vitpos models, and finds the position encoding in any ViT checkpoint."""
