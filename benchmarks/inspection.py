"""How long `vitpos inspect` takes for a ViT checkpoint that timm wrote, with all figures but UMAP.

    python benchmarks/inspection.py [--rounds 3] [--model vit_base_patch16_224]

Random weights are written to a `.safetensors` file once. Each round starts the command anew and tells its seconds, from
start to end, and those of `vitpos --help`, which does next to nothing; then the medians. Needs timm.
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
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "vitpos", *map(str, arguments)], check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="vit_base_patch16_224")
    asked = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vit.safetensors"
        model = peer("timm").create_model(asked.model)
        save_file(model.state_dict(), file)
        grid = "x".join(map(str, model.patch_embed.grid_size))  # which no random table tells
        rows = []
        for number in range(asked.rounds):
            out = Path(folder) / f"out{number}"
            rows.append((seconds("inspect", file, "--grid", grid, "--out", out), seconds("--help")))
            print(f"  inspect {rows[-1][0]:5.1f} s, --help {rows[-1][1]:4.1f} s")
        size, figures = file.stat().st_size / 2**20, len(list(out.glob("*.png")))
        whole, nothing = map(statistics.median, zip(*rows, strict=True))
        print(f"{asked.model}, {size:.0f} MiB: {whole:.1f} s, of them {nothing:.1f} s to start; {figures} figures")


if __name__ == "__main__":
    main()
