"""Draws docs/images/headline.png from results/mnist-jigsaw.csv: ``python docs/draw_headline.py``."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[1]
TESTS = {
    "accuracy": "original images",
    "jigsaw(grid=(7, 7), positions='follow')": "patches permuted,\npositions permuted with them",
    "jigsaw(grid=(7, 7), positions='stay')": "patches permuted,\npositions left in place",
}
ENCODINGS = {"none": ("no positions", "#9aa5b1"), "learned": ("learned positions", "#2f6db5")}


def accuracies(encoding: str, evaluation: str) -> list[float]:
    """Returns the accuracy of the attention model on each seed, in percent."""
    with (ROOT / "results" / "mnist-jigsaw.csv").open() as file:
        return [
            100 * float(row["value"])
            for row in csv.DictReader(file)
            if (row["data"], row["model"], row["metric"], row["x"]) == ("mnist", "minimal", "accuracy", "")
            and (row["encoding"], row["evaluation"]) == (encoding, evaluation)
        ]


def main() -> None:
    """Draws one bar per encoding and test, with the standard deviation over the seeds."""
    figure, axes = plt.subplots(figsize=(7.2, 3.0), dpi=150, layout="constrained")
    for shift, (encoding, (label, color)) in zip((-0.19, 0.19), ENCODINGS.items(), strict=True):
        values = [accuracies(encoding, evaluation) for evaluation in TESTS]
        means, stds = [statistics.fmean(v) for v in values], [statistics.stdev(v) for v in values]
        at = [i + shift for i in range(len(TESTS))]
        axes.bar(at, means, 0.36, yerr=stds, color=color, label=label, capsize=3)
        for x, mean, std in zip(at, means, stds, strict=True):
            axes.text(x, mean + std + 2, f"{mean:.1f}", ha="center", fontsize=9)
    axes.axhline(10, color="black", linewidth=0.8, linestyle=":")
    axes.text(-0.48, 11.5, "chance", fontsize=8)
    axes.set_xticks(range(len(TESTS)), list(TESTS.values()))
    axes.set(ylim=(0, 110), ylabel="test accuracy, %", xlim=(-0.5, 2.5))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right")
    figure.savefig(ROOT / "docs" / "images" / "headline.png")


if __name__ == "__main__":
    main()
