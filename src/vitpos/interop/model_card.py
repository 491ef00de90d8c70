"""The model card of a saved model: its encoding and paper, sizes, number of parameters, and how to load it."""

from __future__ import annotations

from torch import nn

from vitpos.encodings import ENCODINGS
from vitpos.models.base import PatchClassifier

CARD = """---
library_name: vitpos
pipeline_tag: image-classification
tags:
- vision-transformer
- position-encoding
---

# {title}

A model of vitpos, a library for position encodings in Vision Transformers.

| | |
| --- | --- |
{rows}

## Position encoding

{encodings}

## Use

```python
import torch
import vitpos

model = vitpos.from_pretrained("user/name")  # this repository, or a local folder with its files
logits = model(torch.randn(1, {shape}))  # images normalized as in training
```
"""


def model_card(model: nn.Module, spec: str, encoding: str, image_shape: tuple[int, int, int], num_classes: int) -> str:
    """Returns the model card, Markdown with the metadata of the Hugging Face Hub, for a model and its specs."""
    rows = {"model": f"`{spec}`", "position encoding": f"`{encoding}`"}
    if isinstance(model, PatchClassifier):
        (rows_, columns), (height, width) = model.geometry.grid, model.patch
        rows["patches"] = f"{rows_}×{columns} (rows × columns), each {height}×{width} pixels"
    channels, height, width = image_shape
    rows["training images"] = f"{channels} channels, {height}×{width} pixels"
    rows["classes"] = str(num_classes)
    rows["parameters"] = f"{sum(parameter.numel() for parameter in model.parameters()):,}"
    terms = zip(ENCODINGS.parse(encoding), ENCODINGS.describe_all(encoding), strict=True)
    encodings = []
    for term, described in terms:
        paper = described.attributes.get("paper")
        encodings.append(f"- `{term}`: {described.summary}" + (f" Paper: {paper}." if paper else ""))
    return CARD.format(
        title=f"{type(model).__name__} with {encoding}",
        rows="\n".join(f"| {name} | {value} |" for name, value in rows.items()),
        encodings="\n".join(encodings),
        shape=", ".join(map(str, image_shape)),
    )
