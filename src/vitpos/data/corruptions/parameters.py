"""Parameters of each corruption at severities 1 to 5, for ImageNet and for CIFAR."""

from __future__ import annotations

Strengths = dict[str, tuple[tuple[float, ...], ...]]  # corruption → arguments of its function at severities 1 to 5

# The parameters of ImageNet-C (Hendrycks and Dietterich, 1903.12261), for images of 224×224. The package
# `imagecorruptions-imaug` has the same, except that its elastic transform does not warp.
IMAGENET: Strengths = {
    "gaussian_noise": ((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),  # std, as a fraction of white
    "shot_noise": ((60,), (25,), (12,), (5,), (3,)),  # photons at white
    "impulse_noise": ((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),  # fraction of replaced values
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),  # radius, std that smooths the disc
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),  # std, max_shift, rounds
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),  # radius, std
    "zoom_blur": (
        (12, 0.01),
        (16, 0.01),
        (11, 0.02),
        (13, 0.02),
        (11, 0.03),
    ),  # number of zooms, step between their factors
    "snow": (  # mean and std of noise, size, threshold, radius and std of the motion blur, weight of the image
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),  # weights of the image and of the frost
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),  # thickness, decay of the roughness
    "brightness": ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),  # added fraction of white
    "contrast": ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),  # weight of the image
    "elastic_transform": tuple(  # max_shift, smoothing, warp, as fractions of the side
        (244 / 224 * max_shift, 244 / 224 * smoothing, 244 / 224 * warp)  # the authors wrote 244 where they meant 224
        for max_shift, smoothing, warp in (
            (2, 0.7, 0.1),
            (2, 0.08, 0.2),
            (0.05, 0.01, 0.02),
            (0.07, 0.01, 0.02),
            (0.12, 0.01, 0.02),
        )
    ),
    "pixelate": ((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),  # scale
    "jpeg_compression": ((25,), (18,), (15,), (10,), (7,)),  # quality
}

# The parameters of CIFAR-10-C and CIFAR-100-C, for images of 32×32.
CIFAR: Strengths = {
    "gaussian_noise": ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
    "shot_noise": ((500,), (250,), (100,), (75,), (50,)),
    "impulse_noise": ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": ((7, 0.01), (12, 0.01), (16, 0.01), (21, 0.01), (26, 0.01)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "brightness": ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
    "contrast": ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
    "elastic_transform": ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    "pixelate": ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
    "jpeg_compression": ((80,), (65,), (58,), (50,), (40,)),
}

PARAMETERS = {"imagenet": IMAGENET, "cifar": CIFAR}
