"""The models whose numbers are stored: specs of the time before the redesign, and the situations they are run in."""

from __future__ import annotations

from dataclasses import dataclass

CHANNELS, PATCH, CLASSES, BATCH = 2, (2, 3), 5, 3
GRID, OTHER = (3, 4), (4, 6)  # nothing is square
VIT = f"vit(patch={PATCH}, dim=32, depth=2, heads=2, registers=1)"
POOLED = f"vit(patch={PATCH}, dim=32, depth=2, heads=2, pool='mean')"
ENCODINGS = (
    "none",
    "learned",
    "factorized",
    "sinusoidal1d",
    "sinusoidal",
    "fourier",
    "coordinates",
    "cpe",
    "relative",
    "decomposed",
    "cpb",
    "irpe",
    "alibi",
    "lookhere",
    "cope",
    "sape2",
    "rope",
    "rope_mixed",
    "rope_dino",
    "liere",
    "mjp",
    "plugin",  # an encoding that is not in the package; see adapter.py
    # the rest of tests/test_contract.py
    "learned + sinusoidal",
    "plugin + learned",
    "rope + liere + cope",
    "rope(prefix='content') + cpe",
    "cpb + rope",
    "rope(prefix='content') + cpb",
    "learned(between='bilinear')",
    "learned(every_layer=True)",
    "learned(prefix=True)",
    "sinusoidal(layout='moco')",
    "factorized(fractional=True)",
    "fourier(learnable=False)",
    "relative(cls=True)",
    "irpe(mode='bias')",
    "cpb(cosine=False)",
    "cpe(blocks=(0, 1), padding='circular')",
    "lookhere(view=45)",
    "lookhere(view=180)",
    "cope(causal=True)",
    "sape2(dot='q', scaled_gates=False, divide=False, steps=4, sign=-1)",
    "sape2(axes=False)",
    "sape2(gated=False)",
    "rope(prefix='place')",
    "rope(prefix='centre', ntk=2.0)",
    "rope_mixed(prefix='content')",
    "rope_dino(shift=0.5, jitter=1.5)",
    "liere(block=2)",
    "learned + mjp(ratio=0.5, index=True, dal='pca', per='image', derange=True)",
    "rope + mjp(ratio=0.5, dal=None)",
    "relative + sape2 + mjp(ratio=0.5, dal=None)",
    # options that the contract leaves out
    "learned + mjp(ratio=0.5)",
    "learned + mjp(ratio=0.5, jigsaw=False, dal='linear', weight=0.3, blocks='exact')",
    "learned + mjp(ratio=0.5, unknown=False, layers=2, blocks='published')",
    "learned(std=1.0, decay=True) + mjp(ratio=0.5, probability=0.5, warmup=0.2, fade=0.5, std=1.0, decay=True)",
    "rope_dino(rescale=2.0)",
    "coordinates(act='relu')",
)
POOLED_ENCODINGS = (
    "learned",
    "cpe",
    "relative",
    "cpb",
    "irpe",
    "sape2",
    "rope",
    "liere",
    "rope + rope_mixed",
    "learned + mjp(ratio=0.5)",
)
OTHER_MODELS = (
    (f"vit(patch={PATCH}, dim=32, depth=2, heads=2, april=True)", "learned"),
    (
        f"vit(patch={PATCH}, dim=32, depth=3, heads=4, mlp=2.0, drop_path=0.4, init='xavier')",
        "learned + mjp(ratio=0.5)",
    ),
    (f"attention(patch={PATCH}, dim=16, hidden=12)", "none"),
    (f"attention(patch={PATCH}, dim=16, hidden=12)", "learned"),
    (f"attention(patch={PATCH}, dim=16, hidden=12, residual=True)", "rope + cpe"),
    (f"swin(patch={PATCH}, dim=16, depths=(2, 2), heads=(2, 4), window=2)", "none"),
    (f"swin(patch={PATCH}, dim=16, depths=(2, 2), heads=(2, 4), window=2)", "learned + mjp(ratio=0.5)"),
    (f"swin(patch={PATCH}, dim=16, depths=(2, 1), heads=(2, 2), window=(3, 2), windows='cpb', mlp=2.0)", "sinusoidal"),
    (f"swin(patch={PATCH}, dim=16, depths=(2,), heads=(2,), window=2, windows='learned + rope + cpe')", "factorized"),
    ("cnn(width=3, hidden=7)", "none"),
    ("resnet(depths=(1, 2), width=4, stem='small')", "none"),
    ("resnet(depths=(1, 1), width=4)", "none"),
)

EVALUATION = (
    "plain",
    "shuffled",  # tokens keep their order, each image has shuffled positions of its own
    "hidden",  # four positions are not known, the same for all images
    "shuffled and hidden",  # both, for each image by itself
    "other grid",  # a larger grid, its coordinates fitted into the training grid
    "beyond",  # the larger grid with whole coordinates, beyond the training grid
    "resized",  # the larger grid in a model whose tables were resampled for it
)
TRAINING = ("plain", "hidden", "shuffled and hidden", "other grid")
PLAIN = ("plain",)  # all that a model without patches can be asked


@dataclass(frozen=True)
class Case:
    """One model of the stored values, by its old specs."""

    model: str
    encoding: str

    @property
    def id(self) -> str:
        """What its values are stored under."""
        return f"{self.model} | {self.encoding}"

    @property
    def patches(self) -> bool:
        """Whether the model cuts images into patches."""
        return not self.model.startswith(("cnn", "resnet"))

    @property
    def progress(self) -> tuple[float, ...]:
        """How far training is when it is run in training mode, 0 to 1."""
        return (0.1, 0.7) if "fade" in self.encoding else (0.5,)


CASES = (
    *(Case(VIT, encoding) for encoding in ENCODINGS),
    *(Case(POOLED, encoding) for encoding in POOLED_ENCODINGS),
    *(Case(*pair) for pair in OTHER_MODELS),
)
