"""Time of a training step with an attached encoding, compared with timm's own positions in the same model.

    python benchmarks/attach.py [--pairs 15] [--batch 8] [--model small] [--only rope] [--out results/attach.csv]

`learned` is attached to timm's ViT-S/16 without its table, and compared with the table. `rope` is attached to timm's
ViT-S/16 with axial RoPE without its rotation, and compared with that rotation. `none` is attached to the unchanged
ViT-S/16: what the connection alone costs. Steps of both models alternate in one process, and the first of a pair alternates
too; their processor times are compared. Prints the median of the ratios with its 95 % bootstrap interval. Needs timm.
"""

import argparse
import random
import statistics
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, ".")
from _timing import process_time
from tests.references import peer

import vitpos
from vitpos.files import write_csv
from vitpos.lab.machine import machine, package_commit

MODELS = {"small": {}, "tiny": {"depth": 2, "embed_dim": 48, "num_heads": 3, "img_size": 32, "patch_size": 8}}
CASES = {  # attached encoding → timm's model, what becomes of its own positions
    "none": ("vit_small_patch16_224", "keep"),
    "learned": ("vit_small_patch16_224", "remove"),
    "rope": ("vit_small_patch16_rope_224", "remove"),
}


class Trainer:
    """A model in training, with random images and labels."""

    def __init__(self, model: nn.Module, batch: int):
        self.model = model.train()
        size = model.patch_embed.img_size
        self.images, self.labels = torch.randn(batch, 3, *size), torch.randint(0, 10, (batch,))
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)

    def step(self) -> None:
        loss = nn.functional.cross_entropy(self.model(self.images), self.labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def make(name: str, options: dict, encoding: str | None = None, own_positions: str = "keep") -> nn.Module:
    torch.manual_seed(0)
    model = peer("timm").create_model(name, num_classes=10, **options)
    return model if encoding is None else vitpos.attach(model, encoding, own_positions=own_positions)


def ratios(encoding: str, options: dict, batch: int, pairs: int) -> list[float]:
    """Returns the time of a step with the attached encoding divided by that of timm's own, for each pair of steps."""
    name, own_positions = CASES[encoding]
    plain, attached = Trainer(make(name, options), batch), Trainer(make(name, options, encoding, own_positions), batch)
    plain.step(), attached.step()
    found = []
    for number in range(pairs):
        times = {one: process_time(one.step) for one in ((plain, attached) if number % 2 else (attached, plain))}
        found.append(times[attached] / times[plain])
    return found


def interval(values: list[float], resamples: int = 2000) -> tuple[float, float]:
    """Returns the 95 % bootstrap interval of the median."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(resamples))
    return medians[round(0.025 * resamples)], medians[round(0.975 * resamples) - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="CSV file for the medians and their intervals")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    about, rows = machine(), []
    for encoding in [options.only] if options.only else CASES:
        found = ratios(encoding, MODELS[options.model], options.batch, options.pairs)
        low, high = interval(found)
        print(
            f"{encoding:8} attached / timm's own: {statistics.median(found):.3f} [{low:.3f}, {high:.3f}], "
            f"{options.pairs} pairs",
            flush=True,
        )
        rows.append([encoding, CASES[encoding][0], options.batch, options.pairs, statistics.median(found), low, high])
    if options.out:
        fixed = [package_commit()[:12], about["processor"], about["instructions"], options.threads]
        header = [
            "encoding",
            "model",
            "batch",
            "pairs",
            "ratio",
            "low",
            "high",
            "commit",
            "processor",
            "instructions",
            "threads",
        ]
        write_csv(options.out, header, [[*row, *fixed] for row in rows])


if __name__ == "__main__":
    main()
