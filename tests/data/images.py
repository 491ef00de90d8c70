"""Random images for tests and benchmarks."""

import torch
import torch.nn.functional as F


def random_images(count, height, width, channels=3):
    """Returns uint8 images with coarse and fine structure."""
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(count, channels, height, width)
    for cell, weight in ((16, 0.6), (6, 0.3), (2, 0.2)):
        coarse = torch.rand(count, channels, max(height // cell, 2), max(width // cell, 2), generator=generator)
        total += weight * F.interpolate(coarse, size=(height, width), mode="bicubic")
    return (255 * (total - 0.1)).clamp(0, 255).byte()
