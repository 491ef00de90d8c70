"""The specs that the tests of the contract cover, and small models with large random weights."""

import pytest
import torch

from vitpos.encodings import ENCODINGS
from vitpos.models import MODELS
from vitpos.models.token_embedding import embed
from vitpos.models.vit import ViT

GRID, OTHER, PATCH = (3, 4), (2, 6), (2, 3)  # same number of cells; nothing is square


IMAGE = (2, GRID[0] * PATCH[0], GRID[1] * PATCH[1])


MODEL = f"vit(patch={PATCH}, dim=32, depth=2, heads=2, registers=1)"


N = GRID[0] * GRID[1]


SINGLE = list(ENCODINGS)


SPECS = [
    *SINGLE,
    "learned + sinusoidal",
    "nearby + learned",
    "rope + liere + cope",
    "rope(prefix_mode='unrotated') + cpe",
]


SPECS += ["learned + gpsa + pape", "shaw + cape + rope", "cpb + rope", "rope(prefix_mode='unrotated') + cpb"]


OPTIONS = [
    "learned(interpolation='bilinear')",
    "learned(per_layer=True)",
    "learned(prefix_embed=True)",
    "learned(prefix_embed=1)",
    "sinusoidal(layout='moco')",
    "factorized(fractional=True)",
    "fourier(learnable=False)",
    "relative(prefix_bias=True)",
    "irpe(mode='bias')",
    "irpe(on='qkv')",
    "shaw(max_distance=1)",
    "shaw(keys=False)",
    "fire(distance='per_axis')",
    "pape(rotation_invariant=True)",
    "gpsa(layers=1)",
    "coordconv(radius=True)",
    "cpe(layers=(0, 1), padding='circular')",
    "lookhere(field_of_view=45)",
    "lookhere(field_of_view=180)",
    "cope(causal=True)",
    "sape2(mode='query', scale_gates=False, scale_bias=False, max_positions=4, sign=-1)",
    "sape2(per_axis=False)",
    "sape2(axes='rows')",
    "sape2(axes='columns')",
    "sape2(gates=False)",
    "rope(prefix_mode='learned')",
    "rope(prefix_mode='center', ntk_factor=2.0)",
    "rope(base=10000.0, register_grid=(1, 2))",
    "rope(pairing='halves', axes='row_first', register_grid=(1, 2))",
    "rope(offset=1.0, ref_grid=(5, 6))",
    "rope(prefix_mode='center', pairing='halves', normalized=True)",
    "rope_mixed(prefix_mode='unrotated')",
    "rope_dino(shift_coords=0.5, jitter_coords=1.5)",
    "rope_golden(zero_fraction=0.25, prefix_mode='center')",
    "rope_golden(prefix_mode='learned')",
    "rope_spiral(directions=2, prefix_mode='unrotated')",
    "rope_spherical(prefix_mode='learned')",
    "rope_spherical(prefix_mode='center')",
    "pope(base=100.0, uniform_phase=True)",
    "comrope(mode='ap')",
    "comrope(block_size=4, prefix_mode='origin')",
    "comrope(mode='ap', block_size=8, prefix_mode='learned')",
    "string(prefix_mode='unrotated')",
    "string(prefix_mode='learned')",
    "goat(rank=3, key_rank=5, split_frequencies=False)",
    "goat(key_bias=False)",
    "rope + pope",
    "rope + goat",
    "liere(block_size=2)",
    "learned + mjp(mask_ratio=0.5, slot_index=True, localization='pca', mask_per='image', derangement=True)",
    "rope + mjp(mask_ratio=0.5, localization=None)",
    "relative + sape2 + mjp(mask_ratio=0.5, localization=None)",
]


BESIDE = {"mjp": "learned + mjp(mask_ratio=0.5)"}  # hiding positions has no effect without another encoding


every = pytest.mark.parametrize("spec", SPECS + OPTIONS)


options_slow = [*SPECS, *(pytest.param(spec, marks=pytest.mark.slow) for spec in OPTIONS)]
every_options_slow = pytest.mark.parametrize("spec", options_slow)
hiding = pytest.mark.parametrize(  # a slot index reveals the slot of a patch even if its position is hidden
    "spec", [spec for spec in options_slow if "index=True" not in str(spec)]
)
single = pytest.mark.parametrize("spec", SINGLE)


def traits_of(spec):
    return {trait for term in ENCODINGS.parse(spec) for trait in ENCODINGS.describe(term.name).traits}


def model_of(spec: str, dtype=torch.float64, model=MODEL) -> ViT:
    """Returns a small ViT with large random weights, so that the effect of an encoding is visible."""
    torch.manual_seed(0)
    model = MODELS.build(model, IMAGE, 5, spec).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            size = min(0.5, 1.5 * parameter.shape[1] ** -0.5) if parameter.ndim == 2 else 0.5
            parameter.copy_(torch.randn_like(parameter) * size)
    return model


def random_images(count=3, grid=GRID, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    size = grid[0] * PATCH[0], grid[1] * PATCH[1]
    return torch.randn(count, 2, *size, generator=generator, dtype=torch.float64).to(dtype)


def tokens(count=3, n=N):
    return torch.randn(count, n, 32, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def forward(model, x, pos):
    """The model from its patch tokens on."""
    x, pos = model.encoding.augment(x, pos)
    return model.head(model.pool_tokens(model.forward_blocks(embed(model.encoding, x, pos, 0), pos)))


def same(a, b):
    return torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def shuffled(n=N):
    return torch.randperm(n, generator=torch.Generator().manual_seed(3))
