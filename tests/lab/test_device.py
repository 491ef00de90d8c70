"""The device option: what it accepts, what it refuses in one line, and that nothing is tied to the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import vitpos
from vitpos import ENCODINGS, InputError, Positions, ViT
from vitpos.lab.device import VARIABLE, chosen_device, using_device

UNAVAILABLE = [f"cuda:{torch.cuda.device_count()}"] + ["mps"] * (not torch.backends.mps.is_available())


@pytest.mark.parametrize("name", UNAVAILABLE)
def test_an_unavailable_device_is_refused_in_one_line(name, tmp_path):
    model = ViT((1, 28, 28), 10, "none", patch=7, dim=16, depth=1, heads=2)
    for call in (
        lambda: vitpos.run("quick", tmp_path / "run", device=name),
        lambda: vitpos.evaluate(model, "mnist(test_limit=8)", device=name),
    ):
        with pytest.raises(InputError, match=f"device '{name}' is not available") as caught:
            call()
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists() and VARIABLE not in os.environ


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:", "", "meta", "cpu:0\n"])
def test_an_unknown_device_is_refused(name):
    with pytest.raises(InputError, match="choose cpu, cuda, cuda:0, mps or auto"), using_device(name):
        pass


def test_one_module_alone_looks_for_a_gpu():
    sources = Path(vitpos.__file__).parent.rglob("*.py")
    found = {path.name for path in sources if "cuda.is_available" in path.read_text()}
    assert found == {"device.py"}, "others call chosen_device(), or the option device has no effect there"


def test_the_choice_ends_with_the_call():
    with using_device("cpu"):
        assert os.environ[VARIABLE] == "cpu" and chosen_device() == torch.device("cpu")
    assert VARIABLE not in os.environ
    model = ViT((1, 28, 28), 10, "none", patch=7, dim=16, depth=1, heads=2)
    assert "accuracy" in vitpos.evaluate(model, "mnist(test_limit=8)", device="cpu")


def test_commands_refuse_an_unavailable_device_with_exit_code_2(tmp_path):
    commands = [["run", "quick"], ["evaluate", "x", "--with", "accuracy"], ["attack", "x", "--with", "closed_form"]]
    script = (
        "import sys\nfrom vitpos.cli.main import main\n"
        "for command in eval(sys.argv.pop()):\n"
        "    sys.argv[1:] = [*command, '--device', 'cuda:99']\n"
        "    try: main()\n"
        "    except SystemExit as done: print(done.code)\n"
    )
    commands = [[*command, "--out", str(tmp_path / "out")] for command in (commands[0], commands[2])] + [commands[1]]
    commands.append(["inspect", "x", "--out", str(tmp_path / "out")])
    done = subprocess.run([sys.executable, "-c", script, repr(commands)], capture_output=True, text=True)
    assert done.stdout.split() == ["2"] * 4, done.stderr
    assert done.stderr.count("device 'cuda:99' is not available") == 4 and "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", [*ENCODINGS, "rope(register_grid=(1, 2))", "learned + sape2"])
def test_encodings_mix_no_devices(encoding, monkeypatch):
    """On the meta device, a tensor that is created on the CPU is an error. Tracing avoids reading values."""
    sizes = {"patch": (4, 6), "dim": 32, "depth": 1, "heads": 2, "registers": 2}
    model = ViT((3, 12, 24), 5, encoding, **sizes).to("meta").eval()
    monkeypatch.setattr(torch.compiler, "_is_compiling_flag", True)
    with torch.no_grad():
        for rows, columns in ((3, 4), (5, 2)):
            count = rows * columns
            images = torch.empty(2, 3, 4 * rows, 6 * columns, device="meta")
            moved = Positions.from_grid((rows, columns), device="meta").permute(torch.arange(count, device="meta"))
            for pos in (None, moved, moved.hide(torch.ones(1, count, dtype=torch.bool, device="meta"))):
                assert model(images, pos).device.type == "meta"
