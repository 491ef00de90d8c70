"""Other libraries: loads timm's weights into our models, and finds the position encoding in any ViT checkpoint."""
