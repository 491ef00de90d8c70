"""Two processes with DistributedDataParallel give an attached model the gradients of the whole batch."""

import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from tests.interop.distributed import attached, gradients
from tests.interop.test_attach import images
from tests.processes import ROOT


@pytest.mark.slow
def test_gradients_are_averaged_over_processes(tmp_path):
    words = ["2", str(tmp_path / "store"), str(tmp_path / "gradients")]
    command = [sys.executable, "-m", "tests.interop.distributed"]
    running = [subprocess.Popen([*command, str(rank), *words], cwd=ROOT) for rank in range(2)]
    try:
        assert [process.wait(timeout=300) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
    expected = gradients(attached(), images(batch=4))
    for rank in range(2):
        found = load_file(tmp_path / f"gradients-{rank}")
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            assert torch.allclose(found[name], gradient, atol=1e-12), name
