"""Wrong input of every command: one line and exit code 2."""

import pytest

from tests.processes import TINY, vitpos


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "mnist-jigsw", "--out", "OUT"], "did you mean 'mnist-jigsaw'?"),
        (["run", "mnist-jigsaw"], "--out"),
        (["run", "mnist-jigsaw", "--out", "OUT", "--set", "train.epoch=1"], "did you mean 'train.epochs'?"),
        (["run", "mnist-jigsaw", "--out", "OUT", "--set", "encoding=learned(sdt=1)"], "did you mean 'std'?"),
        (["run", "mnist-jigsaw", "--out", "OUT", "--set", "train.epochs=x"], "takes int"),
        (["run", "mnist-jigsaw", "--out", "OUT", "--seeds", "0;1"], "write --seeds 0,1,2"),
        (["run", "mnist-jigsaw", "--out", "OUT", "--set", "model=minimal(patch=5)"], "patches of 5x5"),
        (["run", "BROKEN", "--out", "OUT"], "is not valid TOML"),
        (["run", "mnist-jigsaw", "--out", "BROKEN"], "is a file; give a folder"),
        (["run", "mnist-jigsaw", "--out", "/proc/vitpos"], "cannot be written"),
        (["evaluate", "OUT", "--with", "accuracy"], "is neither the folder of an experiment nor of a cell"),
        (["run", "mnist-jigsaw", "--out", "OUT", "--seeds", "99999999999999999999"], "write --seeds 0,1,2"),
        (["run", "METRIC", "--out", "OUT"], "has no metric 'acuracy'; did you mean 'accuracy'?"),
        (["report", "OUT", "--out", "page.html"], "is not the folder of an experiment"),
        (["list", "encoding"], "did you mean 'encodings'?"),
        (["list", "rope"], "vitpos list encodings rope"),
        (["explode"], "explode"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(words, message, tmp_path):
    (tmp_path / "broken.toml").write_text("data = \n")
    table = '[[tables]]\ntitle = "x"\ncolumns = [{ label = "a", evaluation = "accuracy", metric = "acuracy" }]\n'
    (tmp_path / "metric.toml").write_text(TINY + table)
    paths = {"OUT": tmp_path / "out", "BROKEN": tmp_path / "broken.toml", "METRIC": tmp_path / "metric.toml"}
    done = vitpos(*(paths.get(word, word) for word in words))
    assert done.returncode == 2, done.stderr
    assert done.stdout == "" and len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert not (tmp_path / "out").exists(), "nothing is written for a command that was refused"
