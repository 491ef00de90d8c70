"""``--dry-run`` of ``vitpos run`` and ``vitpos score``: what it prints, and that it writes and downloads nothing."""

import pytest

from tests.processes import ENVIRONMENT, TINY, vitpos


def test_a_dry_run_prints_the_cells_and_writes_nothing(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY)
    for out in ((), ("--out", tmp_path / "out")):
        done = vitpos("run", tmp_path / "tiny.toml", "--seeds", "0,1", *out, "--dry-run")
        assert done.returncode == 0 and done.stderr == "dry run passed; nothing was trained or written\n"
    done = vitpos("run", tmp_path / "tiny.toml", "--seeds", "0,1", "--dry-run")
    words = [line.replace("│", " ").split() for line in done.stdout.splitlines()]
    assert ["none", "2", "4,826"] in words and ["learned", "2", "5,610"] in words and "4 cells" in done.stdout
    assert "All rows: minimal(dim=16), trained on mnist + subset(limit=640, test_limit=1000)" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"tiny.toml"}


def test_a_dry_run_that_fails_has_exit_code_2(tmp_path):
    done = vitpos("run", "quick", "--dry-run", "--set", "model=vit(heads=5)")
    assert done.returncode == 2 and "heads" in done.stderr and "passed" not in done.stderr


def test_a_mask_of_one_patch_is_noted_once_in_one_line(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY.replace('"none", "learned"', '"learned + mjp(mask_ratio=0.03)"'))
    evaluations = "evaluations=accuracy"
    done = vitpos("run", tmp_path / "tiny.toml", "--dry-run", "--set", evaluations, "--set", "train.lr=[0.1, 0.01]")
    notes = [line for line in done.stderr.splitlines() if "mjp" in line]
    assert done.returncode == 0 and notes == [
        "note: encoding 'mjp' got mask_ratio=0.03, which masks 1 of the 49 cells of a 7x7 grid and shuffles nothing; "
        "take 0.0409 or more"
    ]


def test_only_a_dry_run_needs_no_folder():
    for words in (("run", "quick"), ("score", "rope")):
        done = vitpos(*words)
        assert done.returncode == 2 and "option --out is missing; give the folder of the run" in done.stderr


def test_a_dry_run_names_what_would_be_downloaded_and_what_is_missing(tmp_path):
    environment = {**ENVIRONMENT, "VITPOS_CACHE": str(tmp_path / "cache")}
    data = """data=["cifar10 + subset(limit=64)", "image_folder(path='nowhere', size=32)"]"""
    done = vitpos(
        "run", "quick", "--dry-run", "--set", data, "--set", "encoding=rope", "--set", "evaluations=accuracy",
        env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "not checked: cifar10 would be downloaded; noise(shape=(3, 32, 32), classes=10" in done.stderr
    assert "not checked: image_folder(path='nowhere', size=32) is not on this machine; noise(" in done.stderr
    assert "dry run passed" in done.stderr and not (tmp_path / "cache").exists()


def test_score_tries_its_protocol():
    done = vitpos("score", "rope", "--protocol", "vitpos-1-tasks", "--dry-run")
    assert done.returncode == 0 and "dry run passed" in done.stderr and "rope" in done.stdout, done.stderr


@pytest.mark.slow
def test_score_tries_the_protocol_for_gpus_without_imagenet():
    done = vitpos("score", "rope", "--protocol", "vitpos-1-gpu", "--dry-run")
    assert done.returncode == 0 and "21,974,632" in done.stdout, done.stderr
    assert "not checked: image_folder(path='imagenet') is not on this machine" in done.stderr
