"""The public API: names, signatures and types. ``python -m tests.test_api`` writes the snapshot anew."""

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vitpos

SNAPSHOT = Path(__file__).with_name("api.txt")
CONSUMER = """
from typing import assert_type

import vitpos
from torch import Tensor
from vitpos import EvalContext, Geometry, PositionEncoding, Positions, Result, ViT
from vitpos import check_encoding, register_encoding, register_evaluation


@register_encoding("consumed")
class Consumed(PositionEncoding):
    def __init__(self, geometry: Geometry, *, slope: float = 0.5) -> None:
        super().__init__()
        self.slope = slope

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        return -self.slope * pos.offsets().abs().sum(-1)[:, None].to(q.dtype)


@register_evaluation("counted")
def counted(ctx: EvalContext, *, times: float = 1.0) -> Result:
    return Result({"images": times * len(ctx.data.test.labels)})


assert_type(Consumed(Geometry(16, 2, 1, (2, 2))).slope, float)
for encoding in ("learned", Consumed, vitpos.Learned(Geometry(16, 2, 1, (2, 2)))):
    model = ViT((3, 32, 32), 10, encoding, patch=16, dim=16, depth=1, heads=2)
    assert_type(model.encoding, PositionEncoding)
check_encoding(Consumed, slope=1.0)
results = vitpos.run("mnist-jigsaw", "out", encoding=Consumed, evaluations=counted, train={"epochs": 1})
assert_type(results, vitpos.Results)
vitpos.run(3, "out")  # type: ignore[arg-type]
"""


def surface() -> str:
    """Every public name with its signature."""
    lines = []
    for name in sorted(vitpos.__all__):
        thing = getattr(vitpos, name)
        if inspect.isclass(thing) and issubclass(thing, Exception):
            lines.append(f"{name}: exception")
        elif inspect.isclass(thing) or inspect.isroutine(thing):
            lines.append(f"{name}{inspect.signature(thing)}")
        else:
            lines.append(f"{name}: {type(thing).__name__}")
    return re.sub(r" at 0x\w+", "", "\n".join(lines)) + "\n"


def test_the_public_names_and_their_signatures_are_those_of_the_snapshot():
    assert surface() == SNAPSHOT.read_text(encoding="utf-8"), "if that was meant: python -m tests.test_api"


def test_a_type_checker_sees_what_is_imported():
    tree = ast.parse(Path(vitpos.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == vitpos._HOME and {*seen, "__version__"} == set(vitpos.__all__)


@pytest.mark.slow
def test_a_strict_type_checker_accepts_a_consumer(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "consumer.py").write_text(CONSUMER)
    package = Path(vitpos.__file__).parent
    assert (package / "py.typed").exists()
    environment = os.environ | {"MYPYPATH": str(package.parent)}
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent", "--config-file", os.devnull]
    command += ["--cache-dir", str(Path(__file__).parents[1] / ".mypy_cache"), "--ignore-missing-imports"]
    done = subprocess.run([*command, "consumer.py"], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_the_package_imports_no_torch():
    code = "import sys, vitpos; vitpos.ENCODINGS, vitpos.register_encoding; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


if __name__ == "__main__":
    SNAPSHOT.write_text(surface(), encoding="utf-8")
