"""Exports to ONNX and ``torch.export``: graphs that agree with the model at every size, and refusals in one line."""

import re
import sys

import pytest
import torch
from torch import nn

from tests.references import peer
from vitpos import ENCODINGS, MODELS, InputError, PositionEncoding, ViT, attach
from vitpos.interop.export import export_program
from vitpos.interop.onnx import export_onnx
from vitpos.interop.onnx_operators import inverse, matrix_exp, solve, with_onnx_operators

SUMS = ("learned + rope", "learned + sape2", "learned + mjp", "cpe + rope", "comrope(block_size=4)")


def small(encoding="learned + rope", **options):
    """A model of a 3×4 grid with large random weights, so that every part of it matters."""
    torch.manual_seed(0)
    sizes = {"patch": (4, 6), "dim": 32, "depth": 2, "heads": 2, "pool": "mean", "registers": 1}
    model = ViT((3, 12, 24), 5, encoding, **(sizes | options)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def session(path):
    return peer("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])


def gap(found, expected):
    return float((torch.as_tensor(found) - expected).abs().max())


@pytest.mark.slow
@pytest.mark.parametrize("encoding", [*ENCODINGS, *SUMS])
def test_every_encoding_exports_with_free_sizes_and_positions(encoding, tmp_path):
    exported = export_onnx(small(encoding), tmp_path / "model.onnx", dynamic_size=True, positions_as_inputs=True)
    assert exported.difference < 1e-4
    assert {images for images, _, _ in exported.checked} == {1, 2, 3}
    assert len({(height, width) for _, height, width in exported.checked}) == 5


@pytest.mark.slow
@pytest.mark.parametrize("encoding", [*ENCODINGS, *SUMS])
def test_every_encoding_exports_at_the_training_size(encoding, tmp_path):
    assert export_onnx(small(encoding), tmp_path / "model.onnx").difference < 1e-4


def test_a_graph_runs_at_any_size_with_any_positions(tmp_path):
    peer("onnxruntime")
    model = small("learned + alibi", depth=1)
    exported = export_onnx(model, tmp_path / "model.onnx", dynamic_size=True, positions_as_inputs=True)
    assert exported.inputs == ("images", "coords", "index", "known")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert exported.difference < 1e-4 and "differ by at most" in str(exported)
    graph = peer("onnx").load(exported.path).graph
    assert {value.type.tensor_type.elem_type for value in graph.value_info}.isdisjoint({14, 15})  # complex
    assert {node.domain for node in graph.node} == {""}  # no operators of other libraries
    run = session(exported.path)
    with torch.no_grad():
        for batch, rows, columns in ((1, 3, 4), (4, 5, 2), (2, 2, 10)):
            images = torch.randn(batch, 3, 4 * rows, 6 * columns)
            pos = model.positions(images).permute(torch.rand(batch, rows * columns).argsort(1))
            pos = pos.hide(torch.rand(batch, rows * columns) < 0.3)
            tensors = {"coords": pos.coords, "index": pos.index, "known": pos.known}
            inputs = {name: one.unflatten(1, (rows, columns)).numpy() for name, one in tensors.items()}
            logits = run.run(None, {"images": images.numpy(), **inputs})[0]
            assert gap(logits, model(images, pos)) < 1e-4
            assert gap(logits, model(images)) > 1e-2  # positions matter


def test_matrix_exponentials_and_inverses_of_matrix_products_are_those_of_torch():
    generator = torch.Generator().manual_seed(0)
    for size, scale in ((2, 1e-4), (8, 1.0), (8, 40.0), (5, 0.0)):
        matrix = torch.randn(3, 4, size, size, generator=generator, dtype=torch.float64) * scale
        skew = matrix - matrix.mT
        assert gap(matrix_exp(skew), torch.linalg.matrix_exp(skew)) < 1e-11
        regular = torch.eye(size, dtype=torch.float64) + skew
        assert gap(inverse(regular), torch.linalg.inv(regular)) < 1e-11
        right = torch.randn(3, 4, size, 2, generator=generator, dtype=torch.float64)
        assert gap(solve(regular, right), torch.linalg.solve(regular, right)) < 1e-11
        vectors = right[..., 0]
        assert gap(solve(regular, vectors), torch.linalg.solve(regular, vectors[..., None])[..., 0]) < 1e-11


@pytest.mark.parametrize("encoding", ["liere", "string"])
def test_operators_that_onnx_lacks_are_replaced_in_the_graph(encoding):
    model = small(encoding, depth=1)
    program = with_onnx_operators(export_program(model))
    targets = [str(node.target) for node in program.graph.nodes]
    assert not [target for target in targets if "linalg" in target or "matrix_exp" in target or "autocast" in target]
    images = torch.randn(4, 3, 12, 24)
    with torch.no_grad():
        assert gap(program.module()(images), model(images)) < 1e-5


@pytest.mark.parametrize("encoding", ["pape(parabolas=3)", "irpe(mode='bias')"])
def test_a_program_of_torch_runs_at_any_size(encoding):
    model = small(encoding, depth=1)
    program = export_program(model, dynamic_size=True).module()
    with torch.no_grad():
        for shape in ((1, 3, 8, 30), (5, 3, 20, 12)):
            images = torch.randn(shape)
            assert gap(program(images), model(images)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    "encoding",
    [
        *ENCODINGS,
        *SUMS,
        "factorized(fractional=True)",
        "rope(register_grid=(1, 1))",
        "relative(prefix_bias=True)",
        "sape2(per_axis=False)",
        "irpe(on='qkv')",
        "irpe(mode='bias')",
        "learned + mjp(slot_index=True)",
        "fire(distance='per_axis')",
        "cope(causal=True)",
        "cpe(padding='circular')",
        "rope_mixed(prefix_mode='learned')",
        "rope(prefix_mode='unrotated')",
        "pape(rotation_invariant=True)",
        "shaw(keys=False)",
    ],
)
def test_every_encoding_has_a_program_with_free_sizes_and_positions(encoding):
    export_program(small(encoding), dynamic_size=True, positions_as_inputs=True)  # compares logits at five sizes


def test_models_of_other_libraries_export_with_an_attached_encoding():
    model = peer("timm").models.VisionTransformer(
        img_size=(8, 12), in_chans=1, patch_size=4, embed_dim=32, depth=1, num_heads=2, num_classes=3
    )
    attach(model, "rope")
    program = export_program(model, image_size=(1, 8, 12)).module()
    images = torch.randn(3, 1, 8, 12)
    with torch.no_grad():
        assert gap(program(images), model.eval()(images)) < 1e-5


@pytest.mark.parametrize("encoding", [None, "relative"])
def test_models_of_hugging_face_export_their_logits(tmp_path, encoding):
    transformers = peer("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
    config = transformers.Dinov2Config(image_size=12, patch_size=4, num_channels=1, num_labels=3, **sizes)
    model = transformers.Dinov2ForImageClassification(config).eval()
    if encoding:
        attach(model, encoding)
    export = export_onnx(model, tmp_path / "model.onnx", image_size=(1, 12, 12))
    assert export.difference < 1e-4 and export.inputs == ("images",)
    images = torch.randn(2, 1, 12, 12)
    with torch.no_grad():
        program = export_program(model, image_size=(1, 12, 12)).module()
        assert gap(program(images), model(images).logits) < 1e-5


def test_a_module_keeps_its_mode_and_a_fixed_batch_is_refused_by_the_graph():
    model = small("none", depth=1).train()
    program = export_program(model, dynamic_batch=False).module()
    assert model.training and model.blocks[0].training
    with pytest.raises(AssertionError):
        program(torch.randn(2, 3, 12, 24))


def refused(message, call):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_what_cannot_be_exported_is_refused_in_one_line(tmp_path):
    file, swin = tmp_path / "model.onnx", MODELS.build("swin(patch=2)", (3, 16, 24), 5, "none")
    refused("windows of Swin", lambda: export_onnx(swin, file, dynamic_size=True))
    cnn = MODELS.build("cnn", (3, 16, 24), 5, "none")
    refused("needs a model of vitpos with patches, not a CNN", lambda: export_onnx(cnn, file, dynamic_size=True))
    refused("image_size=(channels, height, width)", lambda: export_onnx(cnn, file))
    refused("cannot be cut into patches of 4x6", lambda: export_onnx(small(), file, image_size=(13, 24)))
    refused("is a folder; give a file", lambda: export_onnx(small(), tmp_path))
    refused("got a str to export", lambda: export_onnx("vit", file))
    for dtype in (torch.bfloat16, torch.float64):
        refused("only float32; export model.float()", lambda dtype=dtype: export_onnx(small().to(dtype), file))
    big = ViT((3, 12, 24), 5, "none", patch=(4, 6), depth=1)
    big.head = nn.Linear(192, 3_000_000, device="meta")
    refused("2.2 GB of weights do not fit into an ONNX file", lambda: export_onnx(big, file))
    assert not file.exists()


class Branching(PositionEncoding):
    def update(self, x, pos, layer):
        return x + 1 if x.sum() > 0 else x


def test_an_encoding_that_cannot_be_traced_is_refused_in_one_line(tmp_path):
    refused("torch.export cannot trace this model", lambda: export_program(small(Branching, depth=1)))


def test_a_missing_package_is_named_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    refused("needs the package onnxruntime: pip install onnxruntime", lambda: export_onnx(small(), tmp_path / "x"))
