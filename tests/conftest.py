"""Shared by all tests: one thread per process; the examples of CONTRIBUTING.md as registered modules."""

import re
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import pytest
import torch

from vitpos.data import DATASETS
from vitpos.encodings import ENCODINGS
from vitpos.evaluations import EVALUATIONS
from vitpos.registry import plugins

torch.set_num_threads(1)

ROOT = Path(__file__).parents[1]
REGISTRIES = {"encoding": ENCODINGS, "evaluation": EVALUATIONS, "data": DATASETS}


def _register_examples() -> dict[str, list[str]]:
    """Writes each example of CONTRIBUTING.md into a module and registers it."""
    folder = Path(tempfile.mkdtemp())
    sys.path.insert(0, str(folder))
    found = {}
    for kind, code in re.findall(r"```python (\w+)\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL):
        name = re.search(r"(?:class|def) (\w+)", code)[1]
        (folder / f"example_{name.lower()}.py").write_text(code)
        REGISTRIES[kind].register(name.lower())(getattr(import_module(f"example_{name.lower()}"), name))
        found[kind] = [line for line in code.splitlines() if line and not line.startswith(("from", "import"))]
    return found


EXAMPLES = _register_examples()


@pytest.fixture
def forgetting():
    """What a test imports or registers is gone after it."""
    tables: list[dict] = [plugins.LOADED, plugins.REGISTERED, plugins.UNAVAILABLE, plugins.UNAVAILABLE_NAMES]
    tables += [registry._registered for registry in REGISTRIES.values()]
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)
