"""Imports point one way, and the public names exist."""

import ast
from pathlib import Path

import pytest

import vitpos

SOURCE = Path(vitpos.__file__).parent
LAYERS = [  # each may import from itself and from those before it
    {"errors", "printable", "regular_files", "checksums"},
    {
        "registry",
        "positions",
        "patches",
        "block_masks",
        "shifts",
        "files",
        "metrics",
        "plotting",
    },
    {"data", "encodings"},
    {"models"},
    {"training", "interop"},
    {"evaluations", "privacy", "inspection", "testing"},
    {"lab"},
    {"leaderboard", "claims"},
    {"report", "explorer", "cli"},
    {"__main__", "__init__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):  # import vitpos.x.y
            found |= {
                parts[1] for alias in node.names if len(parts := alias.name.split(".")) > 1 and parts[0] == "vitpos"
            }
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vitpos":
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return found & set(LEVEL)


def test_imports_point_down():
    for path in SOURCE.rglob("*.py"):
        home = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for name in _imports(path):
            assert LEVEL[name] <= LEVEL[home], f"{path.relative_to(SOURCE)} imports vitpos.{name}, which is above it"


def test_every_public_name_is_there():
    for name in vitpos.__all__:
        assert getattr(vitpos, name) is not None
    assert set(vitpos.__all__) <= set(dir(vitpos))


def _compared(node: ast.AST) -> set[str]:
    """Returns the texts that a comparison (``==``, ``in (…)``) or a ``case`` compares with."""
    sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    sides += [node.value] if isinstance(node, ast.MatchValue) else []
    listed = [e for side in sides for e in (side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side])]
    return {e.value for e in listed if isinstance(e, ast.Constant) and isinstance(e.value, str)}


def test_nobody_branches_on_the_name_of_an_encoding():
    """Keys of dictionaries are not compared: those of the registry and of what a checkpoint stores are names too."""
    from vitpos.encodings import ENCODINGS

    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            compared = _compared(node) & set(ENCODINGS)
            if isinstance(node, ast.Compare) and ast.unparse(node.left) == "prefix_mode":
                compared -= {"learned"}  # which is also a value of this option of rotary encodings
            assert not compared, f"{path.name}:{getattr(node, 'lineno', '')}"


@pytest.mark.parametrize(
    "branch", ["x == 'rope'", "'rope' != x", "x in ('rope', 'none')", "match x:\n    case 'rope' | 'none': pass"]
)
def test_every_form_of_a_branch_on_a_name_is_seen(branch):
    assert "rope" in set().union(*map(_compared, ast.walk(ast.parse(branch))))


@pytest.mark.parametrize("line", ["import vitpos.lab.runner", "from vitpos.lab import x", "from vitpos import lab"])
def test_every_form_of_an_import_is_seen(tmp_path, line):
    (tmp_path / "mine.py").write_text(line)
    assert _imports(tmp_path / "mine.py") == {"lab"}


def test_the_citation_gives_the_version_of_the_package():
    lines = (Path(__file__).parents[1] / "CITATION.cff").read_text().splitlines()
    assert f"version: {vitpos.__version__}" in lines
