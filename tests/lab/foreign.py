"""Our trained model in files of timm and Hugging Face, and folders of images, for tests of foreign checkpoints."""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import vitpos
from tests.references import peer
from vitpos.data.dataset import load
from vitpos.interop import to_huggingface, to_timm

DATA = "mnist(limit=1000, test_limit=300)"
PATCH, DIM, DEPTH, HEADS = 7, 32, 2, 2
TIMM = {"img_size": 28, "patch_size": PATCH, "in_chans": 1, "embed_dim": DIM, "depth": DEPTH, "num_heads": HEADS}


def train(folder: Path) -> Path:
    """Returns the folder of a cell: a small ViT after an epoch on MNIST."""
    document = {
        "name": "trained",
        "data": DATA,
        "model": f"vit(patch={PATCH}, dim={DIM}, depth={DEPTH}, heads={HEADS})",
        "encoding": "learned(prefix_embed=True)",
        "train": {"epochs": 1, "lr": 0.003, "batch_size": 50},
    }
    results = vitpos.run(document, folder, workers=1)
    return results.trained[0][1].path


def save_timm(model, folder: Path, **config) -> Path:
    """Writes our model as a folder that timm's ``save_for_hf`` writes."""
    peer("timm")
    from timm.models import save_for_hf, vision_transformer

    theirs = vision_transformer.vit_tiny_patch16_224(num_classes=10, **TIMM)
    theirs.load_state_dict(to_timm(model))
    data = load(DATA)
    fixed = {"mean": list(data.mean), "std": list(data.std), "input_size": (1, 28, 28), "num_classes": 10}
    theirs.pretrained_cfg = {**theirs.pretrained_cfg, **fixed, **config}
    save_for_hf(theirs, str(folder), model_args=TIMM, safe_serialization=True)
    return folder


def save_huggingface(model, folder: Path, names=None, **processor) -> Path:
    """Writes our model as a folder that Hugging Face's ``save_pretrained`` writes, with a preprocessor."""
    transformers = peer("transformers")
    config = transformers.ViTConfig(
        hidden_size=DIM, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=4 * DIM, image_size=28,
        patch_size=PATCH, num_channels=1, num_labels=10, layer_norm_eps=1e-6,
        id2label=dict(enumerate(names or map(str, range(10)))),
    )  # fmt: skip
    theirs = transformers.ViTForImageClassification(config)
    theirs.load_state_dict(to_huggingface(model))
    theirs.save_pretrained(folder)
    data = load(DATA)
    stated = {
        "size": {"height": 28, "width": 28}, "image_mean": list(data.mean), "image_std": list(data.std), "resample": 2
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(stated | processor))
    return folder


def image_folder(folder: Path, names, *, size=(24, 30), images=3, seed=0) -> Path:
    """Writes random images into ``folder/val/NAME`` for each name."""
    rng = np.random.default_rng(seed)
    for name in names:
        (folder / "val" / name).mkdir(parents=True)
        for number in range(images):
            pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "val" / name / f"{number}.png")
    return folder


def random_timm(name: str, *, classes: int, seed: int = 0, **options):
    """Returns a timm model with random weights."""
    timm = peer("timm")
    torch.manual_seed(seed)
    return timm.create_model(name, num_classes=classes, **options).eval()
