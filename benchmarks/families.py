"""What works with which family of models of timm, Hugging Face and torch: attach, load, resize, export.

    python benchmarks/families.py [--write] [FAMILY…]

Builds a small model of each family, two blocks deep, with random weights in float64, and prints the largest difference of
outputs in each column, relative to the largest output, or the reason why something is not possible. `--write` also writes
`results/families.csv` and the table in `docs/families.md`. Takes about two minutes. Needs timm and transformers.
"""

import argparse
import csv
import importlib
import re
import sys
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch import Tensor, nn

sys.path.insert(0, ".")
from tests.interop.test_attach import randomize
from tests.references import compute_in_double, peer

import vitpos
from vitpos import InputError, Positions
from vitpos.interop.attach import find_attachment
from vitpos.patches import permute_patches, seeded_permutation

ROOT = Path(__file__).parents[1]
CSV, PAGE = ROOT / "results" / "families.csv", ROOT / "docs" / "families.md"
COLUMNS = ("library", "family", "model", "attach", "load", "resize", "export")
SIZES = {"embed_dim": 32, "num_heads": 2, "depth": 2, "num_classes": 5}
HF_SIZES = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 48}
HF_CLASSIFIER = {"num_labels": 5}
Call = Callable[[nn.Module, Tensor], Tensor]
FLOAT = torch.Tensor.float  # which computations in float64 replace

TIMM = {  # family → name in timm, options
    "ViT": ("vit_small_patch16_224", {}),
    "DeiT, distilled": ("deit_small_distilled_patch16_224", {}),
    "DINOv2 with registers": ("vit_small_patch14_reg4_dinov2", {}),
    "MAE, fine-tuned": ("vit_base_patch16_224", {"global_pool": "avg"}),
    "CLIP": ("vit_base_patch16_clip_224", {}),
    "SigLIP": ("vit_base_patch16_siglip_224", {}),
    "DINOv3": ("vit_small_patch16_dinov3", {}),
    "RoPE-ViT, axial": ("vit_small_patch16_rope_224", {}),
    "RoPE-ViT, mixed": ("vit_small_patch16_rope_mixed_224", {}),
    "RoPE-ViT, axial + table": ("vit_small_patch16_rope_ape_224", {}),
    "EVA-02": ("eva02_small_patch14_336", {}),
    "Perception Encoder": ("vit_pe_core_small_patch16_384", {"attn_pool_num_heads": 2}),
    "Swin-T": ("swin_tiny_patch4_window7_224", {"embed_dim": 16, "depths": (1, 1), "num_heads": (1, 2)}),
    "ResNet-50": ("resnet50", {"layers": (1, 1, 1, 1), "num_classes": 5}),
}
HUGGING_FACE = {  # family → modeling file, class, its configuration, options, output
    "ViT": ("vit", "ViTForImageClassification", "ViTConfig", HF_CLASSIFIER, "logits"),
    "DeiT": ("deit", "DeiTForImageClassification", "DeiTConfig", HF_CLASSIFIER, "logits"),
    "DINOv2": ("dinov2", "Dinov2ForImageClassification", "Dinov2Config", HF_CLASSIFIER, "logits"),
    "DINOv2 with registers": (
        *("dinov2_with_registers", "Dinov2WithRegistersForImageClassification", "Dinov2WithRegistersConfig"),
        *(HF_CLASSIFIER, "logits"),
    ),
    "DINOv3": ("dinov3_vit", "DINOv3ViTModel", "DINOv3ViTConfig", {"num_register_tokens": 4}, "pooler_output"),
    "MAE, encoder": ("vit_mae", "ViTMAEModel", "ViTMAEConfig", {"mask_ratio": 0.0}, "last_hidden_state"),
    "CLIP tower": ("clip", "CLIPVisionModelWithProjection", "CLIPVisionConfig", {"projection_dim": 5}, "image_embeds"),
    "SigLIP tower": ("siglip", "SiglipVisionModel", "SiglipVisionConfig", {}, "pooler_output"),
}


def images(height: int, width: int) -> Tensor:
    return torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def difference(found: Tensor, expected: Tensor) -> str:
    """Returns the largest difference relative to the largest expected value, such as ``2e-15``."""
    if found.shape != expected.shape or not found.isfinite().all():
        raise InputError(f"outputs of shape {tuple(found.shape)}, not {tuple(expected.shape)}")
    value = ((found - expected).abs().max() / expected.abs().max()).item()
    return f"{value:.0e}" if value else "0"


def measured(measure: Callable[[], str]) -> str:
    """Returns a difference, or the reason in one line why there is none."""
    try:
        with torch.no_grad():
            return measure()
    except InputError as error:
        return refused(error)


def refused(error: InputError) -> str:
    """Returns the reason of an error in a few words."""
    return "no: " + re.sub(r" \(known: .*|;.*|, which load .*", "", " ".join(str(error).split()))


def attached(model: nn.Module, call: Call, x: Tensor, **options: object) -> str:
    """Compares a model with the attached encoding `none`, which adds nothing, with the model before.

    The patches of images are also permuted together with their positions, which must not change the output either.
    """
    expected, changed = call(model, x), deepcopy(model)
    vitpos.attach(changed, "none", **options)
    found = difference(call(changed, x), expected)
    if x.ndim == 4:
        pos = Positions.from_grid(find_attachment(changed).geometry.grid)
        order = seeded_permutation(pos.index.shape[1], seed=0)
        with vitpos.at_positions(changed, pos.permute(order)):
            found = max(found, difference(call(changed, permute_patches(x, pos.grid, order)), expected), key=float)
    vitpos.attach(vitpos.detach(changed), "learned + rope", **options)  # raises if it is not possible
    call(changed, x)
    if not torch.equal(call(vitpos.detach(changed), x), expected):
        raise AssertionError("detach does not give the model back")
    return found


def resized(model: nn.Module, loaded: nn.Module, x: Tensor, expected: Tensor, mode: str) -> str:
    """Returns the difference of outputs after `vitpos.convert` to another, non-square image size.

    A model without patches is called with the images of that size.
    """
    if hasattr(loaded, "geometry"):
        grid = (x.shape[2] // loaded.patch[0], x.shape[3] // loaded.patch[1])
        loaded, _ = vitpos.convert(model, grid=grid, mode=mode, coords="rebuild")
    return difference(loaded(x), expected)


def exported(model: nn.Module, size: tuple[int, int]) -> str:
    """Returns the difference of onnxruntime and the model in float32, as `vitpos.export_onnx` reports it."""
    patched = torch.Tensor.float
    torch.Tensor.float = FLOAT
    torch.set_default_dtype(torch.float32)
    try:
        model = deepcopy(model).float()
        shape = size if hasattr(model, "geometry") else (3, *size)
        with TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
            return f"{vitpos.export_onnx(model, Path(folder) / 'model.onnx', image_size=shape).difference:.0e}"
    finally:
        torch.Tensor.float = patched
        torch.set_default_dtype(torch.float64)


def row(
    library: str, family: str, name: str, model: nn.Module, call: Call, size: tuple[int, int], other: Call
) -> dict[str, str]:
    """Returns a row of the table.

    Args:
        size: Height and width of the images of the model.
        other: The library's own model at another image size: called with the model and images.
    """
    model, x = randomize(model), images(*size)
    found = {"library": library, "family": family, "model": name, "attach": measured(lambda: attached(model, call, x))}
    larger = images(size[0] * 3 // 2, size[1] * 2)
    try:
        loaded = vitpos.load(model)
    except InputError as error:
        found["load"] = found["resize"] = refused(error)
        loaded = None
    if loaded is not None:
        found["load"] = measured(lambda: difference(loaded(x), call(model, x)))
        antialias = library == "timm" or "registers" in family  # how the library's own code resamples the table
        mode = "timm" if antialias else "hf"
        found["resize"] = measured(lambda: resized(model, loaded, larger, other(deepcopy(model), larger), mode))
    found["export"] = measured(lambda: exported(model if loaded is None else loaded, size))
    return found


def timm_row(family: str) -> dict[str, str]:
    name, options = TIMM[family]
    side = 14 if "patch14" in name else 16
    size = (224, 224) if name.startswith("swin") else (4 * side, 4 * side)
    fixed = options if name.startswith("resnet") else SIZES | {"img_size": size} | options
    if name.startswith("swin"):
        fixed.pop("depth")
    model = peer("timm").create_model(name, pretrained=False, **fixed)

    def other(model: nn.Module, x: Tensor) -> Tensor:
        if hasattr(model, "set_input_size"):
            windows = {"window_size": (7, 7)} if name.startswith("swin") else {}  # which timm would enlarge
            model.set_input_size(img_size=tuple(x.shape[2:]), **windows)
        return model.double()(x)

    return row("timm", family, name, model, lambda model, x: model(x), size, other)


def huggingface_row(family: str) -> dict[str, str]:
    file, name, config, options, key = HUGGING_FACE[family]
    home = f"transformers.models.{file}"
    config_class = getattr(importlib.import_module(f"{home}.configuration_{file}"), config)
    patch = 14 if file.startswith("dinov2") else 16
    settings = config_class(image_size=4 * patch, patch_size=patch, **HF_SIZES | options)
    model = getattr(importlib.import_module(f"{home}.modeling_{file}"), name)(settings)

    def call(model: nn.Module, x: Tensor, **interpolates: bool) -> Tensor:
        if file != "vit_mae":
            return model(x, **interpolates)[key]
        patches = x.shape[2] * x.shape[3] // patch**2  # increasing noise keeps their order
        return model(x, noise=torch.arange(patches).expand(len(x), -1), **interpolates)[key][:, 0]

    def other(model: nn.Module, x: Tensor) -> Tensor:
        return call(model, x, **{} if file.startswith("dino") else {"interpolate_pos_encoding": True})

    return row("Hugging Face", family, name, model, call, (4 * patch, 4 * patch), other)


def torch_row(family: str) -> dict[str, str]:
    layer = nn.TransformerEncoderLayer(32, 2, 48, batch_first=True)
    model = randomize(nn.TransformerEncoder(layer, 2))
    tokens = torch.randn(2, 17, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    no_images = "no: it gets tokens and no images"
    return {
        "library": "torch",
        "family": family,
        "model": family,
        "attach": measured(lambda: attached(model, lambda model, x: model(x), tokens, grid=(4, 4), num_prefix=1)),
        "load": no_images,
        "resize": no_images,
        "export": no_images,
    }


FAMILIES = (
    [("timm", name, timm_row) for name in TIMM]
    + [("Hugging Face", name, huggingface_row) for name in HUGGING_FACE]
    + [("torch", "TransformerEncoder", torch_row)]
)


def table(rows: list[dict[str, str]]) -> str:
    """Returns the table of `docs/families.md` for the rows of `results/families.csv`."""
    lines = ["| library | family | attach | load | resize | export |", "| --- | --- | --- | --- | --- | --- |"]
    for one in rows:
        family = f"{one['family']} (`{one['model']}`)" if one["model"] != one["family"] else f"`{one['family']}`"
        cells = [one["library"], family, one["attach"], one["load"], one["resize"], one["export"]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def replace_table(page: str, rows: list[dict[str, str]]) -> str:
    """Returns the page with the table of ``rows`` between its two comments."""
    before, _, rest = page.partition("<!-- table -->\n")
    _, _, after = rest.partition("\n<!-- end of table -->")
    return f"{before}<!-- table -->\n{table(rows)}\n<!-- end of table -->{after}"


def measure(families: list[str]) -> list[dict[str, str]]:
    """Returns the rows of the given families, or of all."""
    peer("timm"), peer("transformers")
    rows = []
    with pytest.MonkeyPatch.context() as patched:
        compute_in_double(patched)
        try:
            for library, family, make in FAMILIES:
                if not families or family in families or library in families:
                    rows.append(make(family))
                    print(" | ".join(rows[-1].get(name, "") for name in COLUMNS), flush=True)
        finally:
            torch.set_default_dtype(torch.float32)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = measure(options.families)
    if options.write:
        with CSV.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        PAGE.write_text(replace_table(PAGE.read_text(), rows))


if __name__ == "__main__":
    main()
