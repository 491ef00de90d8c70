"""Time of corruptions: compared with imagecorruptions-imaug, and as a fraction of evaluating a model.

    python benchmarks/corruptions.py speed [--rounds 7] [--sizes 32 224]
    python benchmarks/corruptions.py share [--rounds 3]

speed: process time per image over all five severities, on one thread: ours in batches, the package image by image, measured
alternately. Prints the median and the minimum over the rounds of the ratio of the two.

share: fraction of the process time that corrupting the images takes when `vit(patch=4, dim=96, depth=4, heads=4)` is
evaluated on 256 images of 32×32 pixels under every corruption and severity.
"""

import argparse
import statistics
import sys
import warnings

import torch
from _timing import process_time

sys.path.insert(0, ".")
from tests.data.images import random_images

from vitpos.data.corruptions import CORRUPTIONS, corrupt
from vitpos.models import MODELS

COUNT = {32: (256, 6), 224: (8, 1)}  # images per round: ours, the package's


def speed(rounds: int, size: int) -> None:
    import cv2
    import imagecorruptions

    cv2.setNumThreads(1)
    many, few = COUNT.get(size, (8, 1))
    images = random_images(many, size, size)
    arrays = [image.permute(1, 2, 0).contiguous().numpy() for image in images[:few]]

    def theirs(kind: str) -> None:
        for severity in range(1, 6):
            for array in arrays:
                imagecorruptions.corrupt(array, severity, kind)

    def ours(kind: str) -> None:
        for severity in range(1, 6):
            corrupt(images, kind, severity)

    print(f"{size}x{size}, milliseconds per image: package / ours, ratio: median and minimum of {rounds} rounds")
    found = {kind: [] for kind in CORRUPTIONS}
    for _ in range(rounds + 1):  # the first is to warm up
        for kind, rows in found.items():
            other = process_time(lambda k=kind: theirs(k)) / 5 / few
            rows.append((other, process_time(lambda k=kind: ours(k)) / 5 / many))
    middle = []
    for kind, rows in found.items():
        ratios = [a / b for a, b in rows[1:]]
        middle.append(statistics.median(ratios))
        other, own = (1e3 * statistics.median(column) for column in zip(*rows[1:], strict=True))
        print(f"  {kind:18} {other:8.3f} / {own:7.4f}  {middle[-1]:7.1f} {min(ratios):7.1f}")
    print(f"  median of kinds {statistics.median(middle):.1f}, lowest {min(middle):.1f}", flush=True)


def share(rounds: int) -> None:
    torch.manual_seed(0)
    images = random_images(256, 32, 32)
    model = MODELS.build("vit(patch=4, dim=96, depth=4, heads=4)", (3, 32, 32), 10, "learned").eval()
    for _ in range(rounds):
        corrupting = predicting = 0.0
        with torch.inference_mode():
            for kind in CORRUPTIONS:
                for severity in range(1, 6):
                    made: list[torch.Tensor] = []
                    for start in (0, 128):
                        batch = images[start : start + 128]
                        corrupting += process_time(
                            lambda b=batch, k=kind, s=severity, at=start, to=made: to.append(corrupt(b, k, s, start=at))
                        )
                        predicting += process_time(lambda b=made[-1]: model(b.float().div_(255)))
        fraction = corrupting / (corrupting + predicting)
        print(f"corrupting {corrupting:.2f} s, predicting {predicting:.2f} s: corrupting is {fraction:.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["speed", "share"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 224])
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.what == "speed":
        for size in options.sizes:
            speed(options.rounds, size)
    else:
        share(options.rounds)


if __name__ == "__main__":
    main()
