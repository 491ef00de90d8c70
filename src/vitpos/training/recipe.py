"""How a model is trained, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from vitpos.errors import UserError
from vitpos.training import AUGMENTS, DEFENCES


@dataclass(frozen=True)
class Recipe:
    """AdamW with warm-up and cosine decay; position parameters, biases and norms have no weight decay."""

    epochs: int = 5
    batch: int = 128
    lr: float = 1e-3  # peak learning rate
    warmup: float = 0.1  # share of training in which the rate climbs from ``start``
    decay: float = 0.05  # weight decay
    smoothing: float = 0.0  # label smoothing
    clip: float = 1.0  # largest gradient norm; 0 leaves gradients alone
    augment: str = ""  # what is done to each batch of pictures, as a spec; nothing if empty
    start: float = 0.0  # learning rate at the beginning of the warm-up
    end: float = 0.0  # learning rate at the end of the cosine
    pieces: int = 1  # parts of a batch that are worked on one after the other, as on so many devices; one step for all
    defence: str = ""  # what is done to the gradient of each image before it is used, as a spec; nothing if empty
    repeats: int = 1  # times that an image is drawn in an epoch, of which each then sees so many fewer

    def __post_init__(self) -> None:
        for name, fine, remedy in (
            ("epochs", self.epochs >= 0, "train for 1 or more, or 0 to keep the first weights"),
            ("batch", self.batch >= 1, "take 1 or more images"),
            ("lr", self.lr > 0, "choose a rate above 0"),
            ("warmup", 0 <= self.warmup < 1, "choose a share from 0 to below 1"),
            ("decay", self.decay >= 0, "choose 0 or more"),
            ("smoothing", 0 <= self.smoothing < 1, "choose a share from 0 to below 1"),
            ("clip", self.clip >= 0, "choose a norm, or 0 for none"),
            ("pieces", 1 <= self.pieces <= self.batch, f"cut a batch of {self.batch} into 1 or more, of an image each"),
            ("repeats", self.repeats >= 1, "draw an image 1 or more times"),
            ("start", 0 <= self.start <= self.lr, f"choose a rate from 0 to train.lr, {self.lr}"),
            ("end", 0 <= self.end <= self.lr, f"choose a rate from 0 to train.lr, {self.lr}"),
        ):
            if not fine:
                raise UserError(f"train.{name} is {getattr(self, name)}; {remedy}")
        if self.defence and self.pieces > 1:
            raise UserError(
                f"train.pieces is {self.pieces}, and train.defence takes images one by one; leave out pieces"
            )
        if self.augment:
            object.__setattr__(self, "augment", AUGMENTS.canonical(self.augment))
        if self.defence:
            object.__setattr__(self, "defence", DEFENCES.canonical(self.defence))
