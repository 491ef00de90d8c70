"""Time of masked jigsaw puzzle (MJP): masks and shuffling against the published code, and a training step with and without.

    python benchmarks/mjp.py masks [--rounds 20]
    python benchmarks/mjp.py pixels [--rounds 20]
    python benchmarks/mjp.py step [--rounds 30] [--model SPEC] [--size 224] [--batch 2]

masks: process time per mask in microseconds, measured alternately: the published sampler one by one, ours 256 at a time.

pixels: process time in milliseconds of shuffling patches in 64 images of 224×224 pixels, measured alternately: the
published code with Unfold and Fold of all patches, ours with the masked patches only.

step: ratio of the process time of a forward and backward pass with `learned + mjp` to that with `learned`, measured in
pairs. Prints the median and an upper 95 % bound of it, by bootstrapping the pairs.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from _timing import process_time

sys.path.insert(0, ".")
from tests.references import published_mask

from vitpos.block_masks import block_mask, permute_masked
from vitpos.models import MODELS
from vitpos.patches import permute_patches


def masks(rounds: int) -> None:
    torch.set_num_threads(1)
    print(f"14x14, microseconds per mask: one by one / 256 at once, ratio (medians of {rounds} rounds)")
    for ratio in (0.03, 0.09, 0.15, 0.27, 0.5, 0.9):
        rows = []
        for _ in range(rounds + 2):
            single = process_time(lambda r=ratio: [published_mask((14, 14), r, 8, 75) for _ in range(64)]) / 64
            rows.append((single, process_time(lambda r=ratio: block_mask((14, 14), r, batch=256)) / 256))
        one, many = (1e6 * statistics.median(column) for column in zip(*rows[2:], strict=True))
        print(f"  {ratio:4} {one:7.1f} / {many:6.1f}  {statistics.median(a / b for a, b in rows[2:]):5.1f}")


def pixels(rounds: int) -> None:
    torch.set_num_threads(1)
    images = torch.randn(64, 3, 224, 224)
    print(f"64 images, 14x14 cells, milliseconds: unfold and fold / ours, ratio (medians of {rounds} rounds)")
    for ratio in (0.03, 0.27, 0.5):
        rows = []
        for _ in range(rounds + 2):
            order = permute_masked(block_mask((14, 14), ratio))[0]
            rows.append(
                [
                    process_time(lambda o=order: F.fold(F.unfold(images, 16, stride=16)[:, :, o], 224, 16, stride=16)),
                    process_time(lambda o=order: permute_patches(images, (14, 14), o)),
                ]
            )
        theirs, ours = (1e3 * statistics.median(column) for column in zip(*rows[2:], strict=True))
        print(f"  {ratio:4} {theirs:6.1f} / {ours:5.1f}  {statistics.median(a / b for a, b in rows[2:]):4.1f}")


def step(rounds: int, model: str, size: int, batch: int) -> None:
    images = torch.randn(batch, 3, size, size)

    def contender(encoding: str) -> Callable[[], object]:
        net = MODELS.build(model, (3, size, size), 1000, encoding).train()

        def once() -> None:
            logits, penalty = net.forward_with_penalty(images)
            (logits.square().mean() + penalty).backward()
            net.zero_grad()

        return once

    plain = contender("learned")
    for dal in ("nonlinear", "pca"):
        with_mjp = contender(f"learned + mjp(mask_ratio=0.27, localization={dal!r})")
        pairs = []
        for turn in range(rounds + 2):
            first, second = (plain, with_mjp) if turn % 2 else (with_mjp, plain)
            taken = [process_time(first), process_time(second)]
            pairs.append(taken[::-1] if turn % 2 else taken)
        ratios = [a / b for a, b in pairs[2:]]
        bootstrap = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(2000))
        print(f"localization={dal}: {statistics.median(ratios):.3f}, at most {bootstrap[1900]:.3f} ({rounds} pairs)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["masks", "pixels", "step"])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--model", default="vit(patch=16, dim=384, depth=12, heads=6)")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=2)
    options = parser.parse_args()
    if options.what == "step":
        step(options.rounds, options.model, options.size, options.batch)
    else:
        {"masks": masks, "pixels": pixels}[options.what](options.rounds)


if __name__ == "__main__":
    main()
