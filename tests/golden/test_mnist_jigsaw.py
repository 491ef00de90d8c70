"""The shipped experiment mnist-jigsaw still gives the numbers that results/mnist-jigsaw.csv had before the redesign.

Of its 14 cells only seven are run, about 3 minutes on one core: the three of its first table and the four of digit pairs.
Under the kernels of a processor with AVX2, and with one thread, every number is the stored one to the last bit. With
torch's kernels for AVX2 but convolutions for AVX-512 the CNN's accuracies differ, by .0005 to .002.
"""

import csv

import pytest
import torch

from tests.golden import adapter
from tests.golden.stored import MNIST_JIGSAW
from tests.golden.tiny import MEASURED, report

AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
CELLS = (  # data, model, encoding
    ("mnist", "cnn", "none"),
    ("mnist", "attention", "none"),
    ("mnist", "attention", "learned"),
    ("mnist + only(classes=(1, 8))", "attention", "none"),
    ("mnist + only(classes=(1, 8))", "attention", "learned"),
    ("mnist + only(classes=(6, 9))", "attention", "none"),
    ("mnist + only(classes=(6, 9))", "attention", "learned"),
)


@pytest.mark.slow
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="the numbers were made with AVX2"
)
def test_mnist_jigsaw_gives_the_numbers_of_before(tmp_path):
    adapter.run_alone("mnist-jigsaw", tmp_path / "run", cells=CELLS, environment=AVX2)
    found, compared, wrong = adapter.read_results(tmp_path / "run" / "results.csv"), 0, {}
    with MNIST_JIGSAW.open(newline="") as file:
        for row in csv.DictReader(file):
            if (row["data"], row["model"], row["encoding"]) in CELLS and row["metric"] not in MEASURED:
                specs = row["data"], row["model"], row["encoding"], int(row["seed"]), row["evaluation"]
                key, value = adapter.row_of_today(*specs, row["metric"]), float(row["value"])
                compared += 1
                if found.get(key) != value:
                    wrong[key] = f"{found.get(key)}, before {value}"
    assert compared > 50
    assert not wrong, report(wrong)
