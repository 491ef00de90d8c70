"""Encodings and evaluations from outside the package: by file, module and entry point."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.encodings.learned import Learned
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.result import Result
from vitpos.registry.plugin_records import load_recorded_plugins, plugins_in
from vitpos.registry.plugins import PluginWarning, load_plugin

GEOMETRY = Geometry(dim=16, heads=2, depth=1, grid=(2, 3))


GAUSSIAN = '''
import math
from typing import Literal, Optional

import torch

import vitpos
from vitpos.encodings.base import PositionEncoding

Shape = Literal["round", "flat"]


class Base(PositionEncoding):
    """A base.

    Args:
        sigma: width of the bump,
            in patches.
    """

    def __init__(self, geometry, *, sigma: float = math.pi, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.sigma = sigma


class Gaussian(Base):
    """A bias that falls off as a bell curve."""

    traits = ("translation_invariant",)

    def __init__(self, geometry, shape: Shape = "round", *, limit: Optional[int] = None, **options):
        super().__init__(geometry, **options)

    def bias(self, q, k, pos, layer):
        return -(pos.offsets().square().sum(-1)[:, None] / (2 * self.sigma**2)).to(q.dtype)
'''


pytestmark = pytest.mark.usefixtures("forgetting")


@pytest.fixture
def gaussian(tmp_path, monkeypatch):
    folder = tmp_path / "my code-v1.2"
    folder.mkdir()
    (folder / "mine.py").write_text(GAUSSIAN)
    monkeypatch.chdir(tmp_path)
    return "my code-v1.2/mine.py"


def failure(code: str, **more: str) -> str:
    """The last line of a program that fails."""
    environment = os.environ | more
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode, done.stdout
    return done.stderr.strip().splitlines()[-1]


def test_a_file_is_named_in_a_spec_and_keeps_its_path_as_typed(gaussian):
    spec = f"learned+ {gaussian}:Gaussian( sigma=2,shape = 'flat')"
    assert ENCODINGS.canonical(spec) == f"learned + {gaussian}:Gaussian(shape='flat', sigma=2.0)"
    assert ENCODINGS.canonical(ENCODINGS.canonical(spec)) == ENCODINGS.canonical(spec)
    both = ENCODINGS.build(spec, GEOMETRY)
    assert both.parts[1].sigma == 2.0
    absolute = Path(gaussian).resolve()
    assert type(ENCODINGS.build(f"{absolute}:Gaussian", GEOMETRY)) is type(both.parts[1])  # imported once


def test_a_path_with_any_character_is_written_in_quotes(tmp_path):
    path = tmp_path / "c++ (it's).py"
    path.write_text(GAUSSIAN)
    spec = f"{str(path)!r}:Gaussian(sigma=3) + learned"
    assert ENCODINGS.canonical(spec) == f"{str(path)!r}:Gaussian(sigma=3.0) + learned"
    assert ENCODINGS.build(spec, GEOMETRY).parts[0].sigma == 3


def test_a_module_is_named_in_a_spec():
    assert isinstance(ENCODINGS.build("vitpos.encodings.learned:Learned(std=1)", GEOMETRY), Learned)
    with pytest.raises(InputError, match=r"plug-in no_such.package: there is no such module"):
        ENCODINGS.build("no_such.package:Thing", GEOMETRY)


def test_inherited_options_unions_aliases_and_defaults_without_a_literal_are_described(gaussian):
    entry = ENCODINGS.describe(f"{gaussian}:Gaussian")
    kinds = {name: str(option) for name, option in entry.options.items()}
    assert kinds == {"shape": "Literal['round', 'flat']", "limit": "int | None", "sigma": "float", "dtype": "dtype"}
    assert entry.options["dtype"].default is torch.float32 and not entry.options["dtype"].literal
    assert entry.traits == ("translation_invariant",) and "bias" in entry.methods and not entry.open
    assert ENCODINGS.describe(f"{gaussian}:Base").arguments == {"sigma": "width of the bump, in patches."}
    for options, message in (
        ("limit=1.5", "takes int, or None, not 1.5"),
        ("shape='square'", "takes one of 'round', 'flat', not 'square'"),
        ("dtype='float16'", "takes dtype, not 'float16'"),
        ("sgima=1.0", "did you mean 'sigma'?"),
    ):
        with pytest.raises(InputError, match=message.replace("?", r"\?")):
            ENCODINGS.parse(f"{gaussian}:Gaussian({options})")


def test_an_option_without_a_default_has_to_be_given(tmp_path):
    (tmp_path / "needy.py").write_text(
        "from vitpos.evaluations.result import Result\n"
        "def needy(ctx, *, size: int):\n    return Result({'size': float(size)})\n"
    )
    assert EVALUATIONS.build(f"{tmp_path}/needy.py:needy(size=3)", None) == Result({"size": 3.0})
    with pytest.raises(InputError, match=r"needs option 'size'; write .*needy.size=…"):
        EVALUATIONS.parse(f"{tmp_path}/needy.py:needy")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nowhere/mine.py:Gaussian", "no file 'nowhere/mine.py'"),
        ("mine.py:", "cannot read encoding spec"),
        ("a/b:C", "neither a .py file nor a module"),
        (":Gaussian", "cannot read encoding spec"),
    ],
)
def test_a_wrong_reference_is_one_line(spec, message):
    with pytest.raises(InputError, match=message):
        ENCODINGS.parse(spec)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("x = 1\nimport no_such_thing\n", "ModuleNotFoundError: No module named 'no_such_thing'", 2),
        ("def f(:\n", "SyntaxError", 1),
        ("\n\n1 / 0\n", "ZeroDivisionError: division by zero", 3),
        ("import sys\nsys.exit(0)\n", "SystemExit: 0", 2),
        (
            "from vitpos.encodings import register_encoding\n@register_encoding('learned')\nclass X: pass\n",
            "encoding 'learned' is built in; register yours under another name, as 'my_learned'",
            2,
        ),
        (
            "from vitpos.encodings import register_encoding\nregister_encoding('a b')\n",
            "cannot be written in a spec",
            2,
        ),
    ],
)
def test_a_broken_file_is_one_line_with_its_line_number(tmp_path, text, message, line):
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        ENCODINGS.parse(f"{path}:X")
    assert message in str(error.value) and f"{path}, line {line}" in str(error.value)
    assert "\n" not in str(error.value)
    assert ENCODINGS.parse("learned")


@pytest.mark.parametrize("key", ["attributes", "facts"])
def test_the_description_of_a_missing_class_is_read_from_new_and_older_records(tmp_path, key):
    described = {"definition": "A bell.", "options": {"sigma": ["float", "1.0"]}, key: {"traits": ["learnable"]}}
    record = {"path": str(tmp_path / "gone.py"), "sha256": "0", "entries": {"encoding gone_bell": described}}
    with pytest.warns(PluginWarning, match=r"plug-in gone\.py is gone"):
        load_recorded_plugins(tmp_path, {"gone.py": record})
    found = ENCODINGS.describe("gone_bell")
    assert found.traits == ("learnable",) and found.options["sigma"].default == 1.0
    with pytest.raises(InputError, match=r"plug-in gone\.py is gone"):
        ENCODINGS.load("gone_bell")


def test_a_file_that_is_given_by_two_paths_is_read_once(tmp_path, monkeypatch):
    path = tmp_path / "mine.py"
    path.write_text(GAUSSIAN)
    monkeypatch.chdir(tmp_path)
    first = load_plugin("mine.py")
    path.write_text(GAUSSIAN + "# changed\n")
    second = load_plugin(str(path))
    assert second.module is first.module and second.sha256 == first.sha256


def test_a_run_depends_on_the_files_in_its_specs_and_on_no_file_with_a_similar_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.py", "data.py", "more data.py"):
        Path(name).write_text("")
        load_plugin(name)
    found = [plugins_in([spec]) for spec in ("data.py:B", "learned + a.py:C(x=1)", "shift(dataset='more data.py:D')")]
    assert [[plugin.name for plugin in one] for one in found] == [["data.py"], ["a.py"], ["more data.py"]]


def test_a_class_that_fails_while_it_is_built_is_one_line(tmp_path):
    path = tmp_path / "fails.py"
    path.write_text(
        "from vitpos.encodings.base import PositionEncoding\n"
        "class Fails(PositionEncoding):\n    def __init__(self, geometry):\n        self.x = geometry.width\n"
        "class AprilBlock(PositionEncoding):\n    def __init__(self):\n        super().__init__()\n"
        "def other(geometry):\n    return 3\n"
        "def leaves(geometry):\n    raise SystemExit(0)\n"
    )
    for name, message in (
        ("Fails", "failed: AttributeError: .*fails.py, line 4"),
        ("AprilBlock", "takes 1 positional argument but 2 were given .*fails.py"),
        ("other", "makes a int; it has to make a vitpos.encodings.base.PositionEncoding"),
        ("Missing", "has no 'Missing'; it defines Fails, AprilBlock, other, leaves"),
        ("leaves", "failed: SystemExit: 0 .*fails.py, line 11"),
    ):
        with pytest.raises(InputError, match=message):
            ENCODINGS.build(f"{path}:{name}", GEOMETRY)


@pytest.fixture
def installed(tmp_path):
    """A folder that holds two installed packages, one of which is broken and one of which claims a built-in name."""
    (tmp_path / "good_package.py").write_text(GAUSSIAN)
    (tmp_path / "bad_package.py").write_text("\nraise RuntimeError('not today')\n")
    for name, lines in (
        ("good", "bell = good_package:Gaussian\nlearned = good_package:Gaussian"),
        ("bad", "never = bad_package:Never"),
    ):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[vitpos.encodings]\n{lines}\n")
    return os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))


def test_entry_points_are_seen_without_an_import_and_used_on_demand(installed):
    code = (
        "import sys, warnings; warnings.simplefilter('ignore');"
        "from vitpos.encodings import ENCODINGS;"
        "assert {'bell', 'never'} <= set(ENCODINGS) and 'good_package' not in sys.modules;"
        "from vitpos.encodings.base import Geometry;"
        "assert ENCODINGS.canonical('bell(sigma=2)') == 'bell(sigma=2.0)';"
        "ENCODINGS.build('bell', Geometry(16, 2, 1, (2, 3)));"
        "assert ENCODINGS['learned'].__module__ == 'vitpos.encodings.learned';"
        "ENCODINGS.build('never', None)"
    )
    message = failure(code, PYTHONPATH=installed)
    assert "plug-in bad_package: RuntimeError: not today" in message and "bad_package.py, line 2" in message
    clash = "from vitpos.encodings import ENCODINGS; import warnings; warnings.simplefilter('error'); list(ENCODINGS)"
    assert "good registers 'learned' in vitpos.encodings, which is built in" in failure(clash, PYTHONPATH=installed)


def test_a_broken_package_does_not_break_the_list(installed):
    environment = os.environ | {"PYTHONPATH": installed}
    command = [sys.executable, "-m", "vitpos", "list", "encodings"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and "A bias that falls off as a bell curve." in done.stdout
    assert "plug-in bad_package: RuntimeError: not today" in done.stdout and "Traceback" not in done.stderr
