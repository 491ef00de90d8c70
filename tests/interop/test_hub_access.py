"""Names of the Hub without network: one line within seconds, and models in the local cache, in real processes."""

import json
import signal
import socket
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.lab import foreign
from tests.processes import ENVIRONMENT, python, vitpos
from tests.references import peer, pretend_torchvision_operators
from vitpos import ViT, save_pretrained
from vitpos.interop.hub_access import can_connect
from vitpos.printable import one_line

COMMIT = "0" * 40
SECONDS = 20
DATA = "mnist(limit=20, test_limit=20)"


def prepare():
    """Imports the libraries in the new process, which SIGALRM then ends after 20 s."""
    pretend_torchvision_operators()
    peer("timm"), peer("transformers.models.vit.modeling_vit")
    signal.alarm(SECONDS)


@pytest.fixture
def unreachable(tmp_path):
    """The environment of a process whose Hub is a closed port of this machine, with an empty cache in ``tmp_path``."""
    peer("timm"), peer("transformers")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert not can_connect(address)
        kept = {name: value for name, value in ENVIRONMENT.items() if not name.lower().endswith(("_proxy", "_offline"))}
        yield kept | {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path)}


def cached(home: Path, name: str) -> Path:
    """Returns a new folder in a cache of the Hub for the files of the repository ``name``."""
    folder = home / "hub" / peer("huggingface_hub.file_download").repo_folder_name(repo_id=name, repo_type="model")
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    return folder / "snapshots" / COMMIT


@pytest.mark.parametrize("name", ["timm:test_vit", "hf:google/vit-base-patch16-224"])
def test_a_hub_that_cannot_be_reached_is_one_line_within_seconds(unreachable, tmp_path, name):
    words = ("evaluate", name, "--data", DATA, "--with", "accuracy", "--out", tmp_path / "out")
    done = vitpos(*words, env=unreachable, before=prepare)
    assert done.returncode == 2, done.stderr
    assert "Retry" not in done.stderr
    assert done.stderr.rstrip().count("\n") == 0, done.stderr
    assert f"{name} was not loaded: it is not in the local cache" in done.stderr
    assert "check the network" in done.stderr and "…" not in done.stderr


def test_models_in_the_cache_are_loaded_without_network(unreachable, tmp_path):
    torch.manual_seed(0)
    model = ViT((1, 28, 28), 10, "learned(prefix_embed=True)", patch=7, dim=32, depth=2, heads=2).eval()
    foreign.save_huggingface(model, cached(tmp_path, "user/theirs"), image_std=[0.25], image_mean=[0.5])
    save_pretrained(model, cached(tmp_path, "user/ours"))
    timm_model = foreign.random_timm("test_vit", classes=1000)
    save_file(timm_model.state_dict(), cached(tmp_path, timm_model.pretrained_cfg["hf_hub_id"]) / "model.safetensors")
    x, image = torch.randn(2, 1, 28, 28), torch.randn(2, 3, 160, 160)
    with torch.no_grad():
        torch.save({"x": x, "image": image, "y": model(x), "timm": timm_model(image)}, tmp_path / "expected.pt")
    script = tmp_path / "script.py"
    script.write_text(
        "import json, torch, vitpos\n"
        "from vitpos.interop.preprocessing import stated_preprocessing\n"
        f"one = torch.load({str(tmp_path / 'expected.pt')!r})\n"
        "with torch.no_grad():\n"
        "    found = {'hf': (vitpos.load('hf:user/theirs')(one['x']) - one['y']).abs().max().item(),\n"
        "        'ours': (vitpos.from_pretrained('user/ours')(one['x']) - one['y']).abs().max().item(),\n"
        "        'timm': (vitpos.load('timm:test_vit')(one['image']) - one['timm']).abs().max().item(),\n"
        "        'mean': stated_preprocessing('hf:user/theirs', {}).mean}\n"
        "print(json.dumps(found))\n"
    )
    done = python(script, env=unreachable, before=prepare)
    assert done.returncode == 0 and "Retry" not in done.stderr, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("mean") == [0.5]
    assert max(found.values()) < 1e-4


def test_a_host_that_accepts_connections_is_found_and_a_silent_one_is_given_up():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        assert can_connect(f"http://127.0.0.1:{server.getsockname()[1]}")
    start = time.monotonic()
    assert not can_connect("http://192.0.2.1", timeout=0.5)  # an address that is reserved for documentation
    assert time.monotonic() - start < 10


def test_a_long_message_is_cut_between_words():
    words = [f"word{number}" for number in range(100)]
    kept = one_line(ValueError(" ".join(words))).removeprefix("ValueError: ").split()
    assert len(" ".join(kept)) <= 240 and set(kept) - {"…"} < set(words)
    assert len(one_line(ValueError("x" * 1000))) < 260
