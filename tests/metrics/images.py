"""Random image pairs for the tests of image metrics."""

import torch
import torch.nn.functional as F


def image_pair(count, channels, height, width, dtype=torch.float64, seed=0):
    """Smooth random images and the same with noise of increasing strength: (noisy, original)."""
    draw = torch.Generator().manual_seed(seed)
    targets = torch.zeros(count, channels, height, width, dtype=torch.float64)
    for cell, weight in ((16, 0.6), (6, 0.3), (2, 0.2)):
        coarse = torch.rand(count, channels, max(height // cell, 2), max(width // cell, 2), generator=draw).double()
        targets += weight * F.interpolate(coarse, size=(height, width), mode="bicubic")
    targets = (targets - 0.1).clamp(0, 1)
    noise = torch.randn(targets.shape, generator=draw).double() * torch.linspace(0.02, 0.3, count).view(-1, 1, 1, 1)
    return (targets + noise).clamp(0, 1).to(dtype), targets.to(dtype)
