"""Imports point one way, and the public names exist."""

import ast
from pathlib import Path

import vitpos

SOURCE = Path(vitpos.__file__).parent
LAYERS = [  # each may import from itself and from those before it
    {"errors"},
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


def test_nobody_branches_on_the_name_of_an_encoding():
    from vitpos.encodings import ENCODINGS

    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                constants = [c.value for c in [node.left, *node.comparators] if isinstance(c, ast.Constant)]
                compared = set(constants) & set(ENCODINGS)
                if ast.unparse(node.left) == "prefix_mode":
                    compared -= {"learned"}  # which is also a value of this option of rotary encodings
                assert not compared, f"{path.name}:{node.lineno}"


def test_the_citation_gives_the_version_of_the_package():
    lines = (Path(__file__).parents[1] / "CITATION.cff").read_text().splitlines()
    assert f"version: {vitpos.__version__}" in lines
