"""``Recipe``: the hyperparameters of a training."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from vitpos.errors import InputError
from vitpos.training import AUGMENTATIONS, DEFENSES

LATER_OPTIONS = ("weights", "position_lr_factor", "log_test_accuracy")
"""Options that were added after trainings had been stored; at their defaults they do not change the identity of a cell."""


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters of a training with AdamW: epochs, batch size, learning rate, augmentation and so on.

    The learning rate has a linear warm-up and a cosine decay. Weight decay is not applied to biases, norms and, by default,
    the weights of the position encoding. ``augment`` and ``defense`` are specs such as ``"flip + crop(pad=4)"`` and
    ``"clip + noise"``; a defense changes the gradient of each image.

    ``weights`` and ``log_test_accuracy`` are used by ``vitpos run``, which builds, trains and evaluates a model;
    :func:`vitpos.fit` trains the model that it gets and ignores both.
    """

    epochs: int = 5
    batch_size: int = 128
    lr: float = 1e-3  # peak learning rate
    warmup_fraction: float = 0.1  # fraction of training in which the learning rate rises from ``lr_start`` to ``lr``
    weight_decay: float = 0.05
    label_smoothing: float = 0.0
    grad_clip: float = 1.0  # maximum gradient norm; 0 does not clip
    augment: str = ""  # spec of the augmentation of each batch; none if empty
    lr_start: float = 0.0  # learning rate at the beginning of the warm-up
    lr_end: float = 0.0  # learning rate at the end of the cosine
    grad_accum: int = 1  # parts of a batch that are processed one after the other, as on several devices
    defense: str = ""  # spec of what is done to the gradient of each image before it is used; nothing if empty
    repeated_aug: int = 1  # times that an image occurs in an epoch; an epoch then has as many times fewer images
    weights: str = (
        ""  # where a training starts: a weights file, or the folder of a cell or run; random weights if empty
    )
    position_lr_factor: float = (
        1.0  # learning rate of the position encoding, as a multiple of that of the other weights
    )
    log_test_accuracy: bool = False  # whether the log has the accuracy on the test images after each epoch

    def __post_init__(self) -> None:
        for f in fields(self):
            if isinstance(value := getattr(self, f.name), float) and not math.isfinite(value):
                raise InputError(f"train.{f.name} is {value}; choose a finite number")
        accum = f"split a batch of {self.batch_size} into 1 or more parts of 1 image or more"
        for name, valid, remedy in (
            ("epochs", self.epochs >= 0, "train for 1 or more, or 0 to keep the initial weights"),
            ("batch_size", self.batch_size >= 1, "take 1 or more images"),
            ("lr", self.lr > 0, "choose a learning rate above 0"),
            ("warmup_fraction", 0 <= self.warmup_fraction < 1, "choose a fraction from 0 to below 1"),
            ("weight_decay", self.weight_decay >= 0, "choose 0 or more"),
            ("label_smoothing", 0 <= self.label_smoothing < 1, "choose a fraction from 0 to below 1"),
            ("grad_clip", self.grad_clip >= 0, "choose a norm, or 0 for none"),
            ("grad_accum", 1 <= self.grad_accum <= self.batch_size, accum),
            ("repeated_aug", self.repeated_aug >= 1, "repeat an image 1 or more times"),
            ("position_lr_factor", self.position_lr_factor >= 0, "choose a factor above 0, or 0 to freeze positions"),
            ("lr_start", 0 <= self.lr_start <= self.lr, f"choose a learning rate from 0 to train.lr, {self.lr}"),
            ("lr_end", 0 <= self.lr_end <= self.lr, f"choose a learning rate from 0 to train.lr, {self.lr}"),
        ):
            if not valid:
                raise InputError(f"train.{name} is {getattr(self, name)}; {remedy}")
        if self.defense and self.grad_accum > 1:
            raise InputError(
                f"train.grad_accum is {self.grad_accum}, and train.defense processes images one by one; "
                "leave out train.grad_accum"
            )
        if self.augment:
            object.__setattr__(self, "augment", AUGMENTATIONS.canonical(self.augment))
        if self.defense:
            object.__setattr__(self, "defense", DEFENSES.canonical(self.defense))
