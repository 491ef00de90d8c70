"""The public check from a shell prints a table."""

from tests.processes import python


def test_from_a_shell_it_prints_a_table(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from vitpos.encodings.base import PositionEncoding\n"
        "class Good(PositionEncoding):\n"
        "    traits = ('permutation_invariant', 'grid_shape_invariant', 'translation_invariant')\n"
        "    def __init__(self, geometry):\n        super().__init__()\n"
        "class Bad(Good):\n    traits = ()\n"
    )
    for name, code in (("Good", 0), ("Bad", 1), ("Missing", 2)):
        done = python("-m", "vitpos.testing", f"{path}:{name}")
        assert done.returncode == code, done.stderr
        assert ("FAILED" in done.stdout) == (name == "Bad") and "Traceback" not in done.stderr
