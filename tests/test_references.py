"""The packages that tests compare with can be imported where they are required, so that no such test is skipped there."""

import importlib
import os
import re
from pathlib import Path

import pytest

from tests.references import pretend_torchvision_operators

PEERS = ("timm", "transformers", "onnxruntime", "huggingface_hub", "onnxscript")
PINNED = re.findall(r"^([\w.-]+)==", (Path(__file__).parents[1] / "constraints.txt").read_text(), re.M)


def test_every_peer_is_pinned():
    assert set(PEERS) <= set(PINNED)


@pytest.mark.skipif(os.environ.get("VITPOS_REQUIRE_PEERS") != "1", reason="VITPOS_REQUIRE_PEERS=1 requires them")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PEERS)
def test_a_required_peer_can_be_imported(name):
    pretend_torchvision_operators()
    importlib.import_module(name)
