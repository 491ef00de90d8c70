"""Wall time of `vitpos inspect` on a timm checkpoint, with all figures except UMAP.

    python benchmarks/inspection.py [--rounds 3] [--model vit_base_patch16_224]

Saves a model with random weights as `.safetensors` once. Each round runs the command in a new process and prints its time
and that of `vitpos --help`, which is the time to start; then the medians are printed. Needs timm.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

sys.path.insert(0, ".")
from tests.references import peer


def seconds(*arguments: object) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "vitpos", *map(str, arguments)], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="vit_base_patch16_224")
    options = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vit.safetensors"
        model = peer("timm").create_model(options.model)
        save_file(model.state_dict(), file)
        grid = "x".join(map(str, model.patch_embed.grid_size))  # which a random table does not determine
        rows = []
        for number in range(options.rounds):
            out = Path(folder) / f"out{number}"
            rows.append((seconds("inspect", file, "--grid", grid, "--out", out), seconds("--help")))
            print(f"  inspect {rows[-1][0]:5.1f} s, --help {rows[-1][1]:4.1f} s")
        size, figures = file.stat().st_size / 2**20, len(list(out.glob("*.png")))
        total, startup = map(statistics.median, zip(*rows, strict=True))
        print(f"{options.model}, {size:.0f} MiB: {total:.1f} s, including {startup:.1f} s to start; {figures} figures")


if __name__ == "__main__":
    main()
