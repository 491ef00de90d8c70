"""One of several processes that train an attached model with DistributedDataParallel; it stores the averaged gradients.

``python -m tests.interop.distributed RANK WORLD_SIZE STORE OUT``
"""

import sys

import torch
from safetensors.torch import save_file
from torch import nn

import vitpos
from tests.interop.test_attach import images, randomize, timm_vit
from tests.references import peer


def attached() -> nn.Module:
    """Returns timm's ViT with an attached encoding; its weights are the same in all processes."""
    peer("timm.models.vision_transformer")
    return randomize(vitpos.attach(timm_vit(peer("timm")), "learned + sape2"))


def gradients(model: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns the gradients of the second of two steps: it fails if a parameter took no part in the first."""
    for _ in range(2):
        model.zero_grad()
        model(x).square().mean().backward()
    module = getattr(model, "module", model)
    return {name: parameter.grad for name, parameter in module.named_parameters()}


if __name__ == "__main__":
    rank, world_size, store, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    try:
        parallel = nn.parallel.DistributedDataParallel(attached())
        save_file(gradients(parallel, images(batch=4)[rank::world_size]), f"{out}-{rank}")
        torch.distributed.barrier()  # a process that leaves while another still talks to it makes that one abort
    finally:
        torch.distributed.destroy_process_group()
