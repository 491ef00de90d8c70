"""Training speed of the model `minimal` on MNIST, compared with a plain script with a DataLoader and with matrix products.

    python benchmarks/training.py [--rounds 9] [--images 6400]

The three run alternately in one process, each on the same number of images. Ratios are computed within a round; their
median over the rounds is printed. Absolute speeds depend on the machine and its load.
"""

import argparse
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from vitpos.data.dataset import Dataset, Split, load
from vitpos.models import MODELS
from vitpos.training.loop import fit
from vitpos.training.recipe import Recipe

BATCH, TOKENS, DIM = 128, 49, 64


class PlainDataset(TorchDataset):
    """Converts each image as torchvision's MNIST, ToTensor and Normalize do."""

    def __init__(self, split: Split):
        self.images, self.labels = split.images, split.labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = Image.fromarray(self.images[index, 0].numpy())
        pixels = torch.from_numpy(np.array(image, copy=True))[None].to(torch.float32).div(255)
        mean, std = (torch.as_tensor([value]).view(-1, 1, 1) for value in (0.1307, 0.3081))
        return pixels.clone().sub_(mean).div_(std), int(self.labels[index])


class PlainModel(nn.Module):
    """The model `minimal` with a learned table, in plain PyTorch."""

    def __init__(self):
        super().__init__()
        self.project = nn.Conv2d(1, DIM, 4, 4)
        self.positions = nn.Parameter(torch.randn(1, TOKENS, DIM) * 0.02)
        self.attention = nn.MultiheadAttention(DIM, 1, batch_first=True)
        self.head = nn.Sequential(nn.Linear(DIM, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, images):
        x = self.project(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.attention(x, x, x)[0].mean(1))


def ours(data: Dataset) -> None:
    model = MODELS.build("minimal", data.shape, 10, "learned")
    list(fit(model, data, Recipe(epochs=1, batch_size=BATCH)))


def script(data: Dataset) -> None:
    model = PlainModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for images, labels in DataLoader(PlainDataset(data.train), BATCH, shuffle=True):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def products(data: Dataset) -> None:
    """Computes only the matrix products of a forward pass and the two of equal size of its backward pass."""
    rows = BATCH * TOKENS
    wide = [(torch.randn(rows, n), torch.randn(n, m)) for n, m in ((16, DIM), (DIM, 3 * DIM), (DIM, DIM))]
    q, weights = torch.randn(BATCH, TOKENS, DIM), torch.randn(BATCH, TOKENS, TOKENS)
    for _ in range(len(data.train) // BATCH):
        for a, b in wide:
            a @ b
            product = a @ b
            a.mT @ product
        for _ in range(3):
            q @ q.mT
            weights @ q


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--images", type=int, default=6400)
    options = parser.parse_args()
    data = load(f"mnist + subset(limit={options.images})")
    contenders = {"ours": ours, "plain script": script, "matrix products": products}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(options.rounds + 1):
        for name, job in contenders.items():
            began = time.perf_counter()
            job(data)
            if turn:  # the first round warms up
                seconds[name].append(time.perf_counter() - began)
    for name, taken in seconds.items():
        ratio = statistics.median(other / own for other, own in zip(taken, seconds["ours"], strict=True))
        speed = options.images / statistics.median(taken)
        print(f"{name:16} {speed:8,.0f} images/s   time / ours: {ratio:.2f}")


if __name__ == "__main__":
    main()
