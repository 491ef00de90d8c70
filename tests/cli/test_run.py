"""The real command in real processes: what it prints, writes and answers, also when it is killed or starved."""

import csv
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import ClassVar

import pytest

from tests.processes import ENVIRONMENT, TINY, finish, start, vitpos


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def finished(tiny) -> tuple[Path, subprocess.CompletedProcess]:
    out = tiny.parent / "out"
    return out, vitpos("run", tiny, "--out", out, "--seeds", "0,1", "--workers", 1)


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "results.csv").open() as file:
        return list(csv.DictReader(file))


def test_run_prints_a_table_and_writes_everything(finished):
    out, done = finished
    assert done.returncode == 0, done.stderr
    assert "±" in done.stdout and "(70.90)" in done.stdout
    found = rows(out)
    assert list(found[0]) == ["experiment", "data", "model", "encoding", "seed", "evaluation", "metric", "x", "value"]
    accuracies = [row for row in found if row["metric"] == "accuracy"]
    assert len(accuracies) == 2 * 2 * 2 and all(0 <= float(row["value"]) <= 1 for row in accuracies)
    by_protocol = {(r["encoding"], r["seed"], r["evaluation"]): r["value"] for r in accuracies}
    for encoding in ("none", "learned"):
        follow = by_protocol[encoding, "0", "jigsaw(grid=(7, 7), positions='follow')"]
        assert by_protocol[encoding, "0", "accuracy"] == follow
    for cell in (out / "cells").iterdir():
        files = {
            "cell.json",
            "log.csv",
            "machine.json",
            "test_samples.safetensors",
            "weights.safetensors",
            "scores.json",
            "tensors",
        }
        table = {"position_table.safetensors"} if "learned" in cell.name else set()
        assert {path.name for path in cell.iterdir()} == files | table


def test_the_page_stands_alone(finished):
    out, _ = finished
    page = (out / "report.html").read_text()

    class Links(HTMLParser):
        found: ClassVar[list[str]] = []

        def handle_starttag(self, tag, attributes):
            self.found += [value for key, value in attributes if key in ("src", "href")]

    Links().feed(page)
    assert Links.found and all(link.startswith(("data:", "#")) for link in Links.found)
    assert all(f'id="{link[1:]}"' in page for link in Links.found if link.startswith("#"))
    for text in ("Does a tiny model run?", "published 70.90", "Confusion", "Position similarity", "Training curves"):
        assert text in page
    for text in (
        "Machine and versions",
        "fraction of the test images, 0 to 1",
        "tiny.toml --out DIR",
        "--seeds 0,1",
        "torch",
    ):
        assert text in page


def test_run_again_does_nothing_again(finished, tiny):
    out, _ = finished
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    again = vitpos("run", tiny, "--out", out, "--seeds", "0,1")
    assert again.returncode == 0
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == before
    assert "±" in again.stdout


def test_more_seeds_go_on_from_those_there(finished, tiny, tmp_path):
    import shutil

    out, _ = finished
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    assert vitpos("run", tiny, "--out", copy, "--seeds", "0,1,2", "--workers", 1).returncode == 0
    assert {row["seed"] for row in rows(copy)} == {"0", "1", "2"}
    same = [row for row in rows(copy) if row["seed"] != "2"]
    assert sorted(map(str, same)) == sorted(map(str, rows(out)))


def test_an_evaluation_with_its_defaults_written_out_is_the_same_evaluation(finished):
    out, _ = finished
    assert vitpos("evaluate", out, "--with", "shuffle(mask_ratio=0.15)").returncode == 0
    assert vitpos("evaluate", out, "--with", "shuffle", "shuffle(positions='stay')").returncode == 0
    stored = {row["evaluation"] for row in rows(out) if row["evaluation"].startswith("shuffle")}
    assert stored == {"shuffle(mask_ratio=0.15)"}


def test_evaluate_adds_to_the_scores_of_a_run_and_of_one_cell(finished):
    out, _ = finished
    done = vitpos("evaluate", out, "--with", "two_class(classes=(4,7))", "cost(steps=1)")
    assert done.returncode == 0 and "accuracy_pair" in done.stdout and "±" in done.stdout
    page = (out / "report.html").read_text()
    assert (
        "Also measured" in page
        and "two_class(classes=(4, 7))</code> accuracy_all, accuracy_pair" in page
        and ">two_class</dt>" in page
    )
    added = [row for row in rows(out) if row["evaluation"] == "two_class(classes=(4, 7))"]
    assert len(added) == 2 * 2 * 2
    cell = next((out / "cells").iterdir())
    assert vitpos("evaluate", cell, "--with", "token_diversity").returncode == 0
    assert len([row for row in rows(out) if row["evaluation"] == "token_diversity"]) == 4
    assert len([row for row in rows(out) if row["evaluation"] == "accuracy"]) == 4


def test_report_of_several_folders_is_one_page(finished, tmp_path):
    out, _ = finished
    done = vitpos("report", out, out, "--out", tmp_path / "page.html")
    assert done.returncode == 0 and (tmp_path / "page.html").read_text().count("<h1>") == 2


def test_other_settings_in_the_same_folder_print_a_note(tiny, finished, tmp_path):
    import shutil

    shutil.copytree(finished[0], tmp_path / "out")
    done = vitpos("run", tiny, "--out", tmp_path / "out", "--seeds", "0", "--set", "encoding=none")
    assert done.returncode == 0 and "was run with other settings" in done.stderr and "already done" in done.stderr
    assert {row["encoding"] for row in rows(tmp_path / "out")} == {"none"}


def test_an_evaluation_without_numbers_says_so(finished):
    done = vitpos("evaluate", finished[0], "--with", "shuffle(hide_masked=True)")
    assert done.returncode == 0 and "no numbers for none, learned: hide_masked=True needs an encoding" in done.stdout


def test_a_refused_run_does_not_say_that_it_replaced_anything(tiny, finished):
    done = vitpos("run", tiny, "--out", finished[0], "--set", "model=vit(heads=5)")
    assert done.returncode == 2 and "was run with other settings" not in done.stderr


def test_finished_cells_have_no_dry_run(tiny, finished):
    from vitpos.lab.events import DryRun, Observer
    from vitpos.lab.runner import run

    class Count(Observer):
        total: ClassVar[list[int]] = []

        def on_event(self, event):
            if isinstance(event, DryRun):
                self.total.append(event.total)

    run(str(tiny), finished[0], workers=1, observer=Count())
    assert Count.total == [0]


def wait_for_checkpoint(out: Path) -> None:
    deadline = time.monotonic() + 120
    while not list(out.rglob("checkpoint.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.02)


def processes_with(variable: str) -> list[str]:
    """The processes of this machine that were started with an environment variable."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            found += [path.parent.name] if variable.encode() in path.read_bytes() else []
    return found


def test_ctrl_c_says_how_to_go_on_and_leaves_no_worker(tiny, tmp_path):
    seeds = ",".join(map(str, range(500)))  # more cells than a pipe holds
    words = ("run", tiny, "--out", tmp_path / "out", "--set", "train.epochs=500", "--seeds", seeds, "--workers", 2)
    mark = f"STARTED_BY={tmp_path}"
    running = start("-m", "vitpos", *words, folder=tmp_path, env={**ENVIRONMENT, "STARTED_BY": str(tmp_path)})
    wait_for_checkpoint(tmp_path)
    assert len(processes_with(mark)) >= 2
    os.kill(running[0].pid, signal.SIGINT)
    done = finish(running)
    assert done.returncode == 130 and "run the same command again to continue" in done.stderr
    assert "Traceback" not in done.stderr and not processes_with(mark)


def test_a_page_needs_a_name_and_makes_its_folder(finished, tmp_path):
    assert "is a folder; give the path of a file" in vitpos("report", finished[0], "--out", tmp_path).stderr
    assert vitpos("report", finished[0], "--out", tmp_path / "new" / "page.html").returncode == 0


def test_a_damaged_mnist_file_is_one_line_and_exit_code_1(tiny, tmp_path):
    import shutil

    import vitpos as package

    copy = tmp_path / "vitpos"
    shutil.copytree(Path(package.__file__).parent, copy)
    archive = copy / "data" / "mnist.xz"
    archive.write_bytes(archive.read_bytes()[:5000])
    done = subprocess.run(
        [sys.executable, "-m", "vitpos", "run", tiny, "--out", "out"],
        cwd=tmp_path, env={**ENVIRONMENT, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1
    assert "MNIST file mnist.xz inside the package cannot be read" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_loss_that_explodes_stops_its_cell_alone_and_keeps_the_last_good_state(tiny, tmp_path):
    lists = ["--set", "train.lr=[1e38, 0.001]", "--set", "train.grad_clip=0", "--set", "encoding=learned"]
    done = vitpos("run", tiny, "--out", tmp_path / "out", *lists, "--workers", 1)
    assert done.returncode == 1 and "try a lower train.lr" in done.stderr and "Traceback" not in done.stderr
    found = rows(tmp_path / "out")
    assert {row["train.lr"] for row in found} == {"0.001"}
    assert len(list((tmp_path / "out").rglob("checkpoint.safetensors"))) == 1
    assert (tmp_path / "out" / "report.html").exists()


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))


def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tiny, tmp_path):
    out = tmp_path / "out"
    full = vitpos("run", tiny, "--out", out, "--workers", 1, before=small_files)
    assert full.returncode == 1 and "File too large" in full.stderr and "Traceback" not in full.stderr
    assert not list(out.rglob("*.part")) and not list(out.rglob("*.safetensors"))
    assert vitpos("run", tiny, "--out", out, "--workers", 1).returncode == 0


def test_a_killed_run_goes_on_and_ends_with_the_same_bits(tiny, tmp_path):
    out, unbroken = tmp_path / "out", tmp_path / "unbroken"
    long = ["--set", "train.epochs=25", "--set", "encoding=learned", "--set", "evaluations=accuracy"]
    assert vitpos("run", tiny, "--out", unbroken, *long).returncode == 0
    process, _ = start("-m", "vitpos", "run", tiny, "--out", out, *long, folder=tmp_path)
    wait_for_checkpoint(out)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not list(out.rglob("weights.safetensors")), "killed too late to show anything"
    assert vitpos("run", tiny, "--out", out, *long).returncode == 0
    (first,), (second,) = (list(folder.rglob("weights.safetensors")) for folder in (out, unbroken))
    assert first.read_bytes() == second.read_bytes()
    assert rows(out) == rows(unbroken)


def test_two_runs_do_not_work_in_one_folder(tiny, tmp_path):
    out = tmp_path / "out"
    process, _ = start(
        "-m", "vitpos", "run", tiny, "--out", out, "--set", "train.epochs=500", "--workers", 1, folder=tmp_path
    )
    wait_for_checkpoint(out)
    before = (out / "experiment.json").read_text()
    second = vitpos("run", tiny, "--out", out, "--seeds", "7")
    process.terminate()
    process.join()
    assert process.exitcode == 128 + signal.SIGTERM
    assert second.returncode == 2 and "another process is working in" in second.stderr
    assert (out / "experiment.json").read_text() == before


def test_a_damaged_weights_file_is_reported_and_not_used(tiny, finished, tmp_path):
    import shutil

    shutil.copytree(finished[0], tmp_path / "out")
    for path in (tmp_path / "out").rglob("weights.safetensors"):
        path.write_bytes(path.read_bytes()[:1000])
    done = vitpos("evaluate", tmp_path / "out", "--with", "jigsaw(seed=3)")
    assert done.returncode == 1 and "is damaged" in done.stderr and "Traceback" not in done.stderr


def test_another_experiment_does_not_move_into_a_folder(finished):
    done = vitpos("run", "mnist-jigsaw", "--out", finished[0])
    assert done.returncode == 2 and "holds experiment 'tiny'" in done.stderr
