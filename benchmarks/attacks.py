"""Time of attacks: closed forms against the solver of the public APRIL implementation, and one step of gradient matching.

    python benchmarks/attacks.py closed [--rounds 20]
    python benchmarks/attacks.py step [--rounds 200] [--encodings learned,rope,none]

closed: process time in milliseconds for one gradient of a ViT (dim 384, patch 16) at 224 pixels, measured alternately. The
public solver is only two calls of least squares (`gelsd`), for the tokens and for the patches; ours is the whole attack
after the gradient is computed.

step: ratio of the process time of one step of `gradient_matching` to that of its minimal operations in plain PyTorch on the
same model: a forward pass, a backward pass with graph, and a backward pass through the distance. The two are measured in
pairs.
"""

import argparse
import statistics

import torch
import torch.nn.functional as F
from _timing import process_time

from vitpos.models import MODELS
from vitpos.models.attention import double_backward_attention
from vitpos.privacy import april, closed_form
from vitpos.privacy.client import SharedGradient, client_gradient, to_precision
from vitpos.privacy.gradient_matching import GradientMatcher

SMALL = "vit(patch=4, dim=96, depth=2, heads=4)"


def closed(rounds: int) -> None:
    torch.manual_seed(0)
    model = to_precision(
        MODELS.build("vit(patch=16, dim=384, depth=2, heads=6, april_block=True)", (3, 224, 224), 10, "learned")
    )
    inputs, label = torch.randn(1, 3, 224, 224, dtype=torch.float64), torch.tensor([1])
    gradients = client_gradient(model, inputs, label)
    shared = SharedGradient(inputs, inputs, label, None, gradients)

    def public() -> None:
        at_tokens = torch.cat([gradients["prefix_tokens"], gradients["encoding.table"][0].flatten(0, 1)])
        weight = model.blocks[0].attention.qkv.weight.detach()
        product = weight.mT @ gradients["blocks.0.attention.qkv.weight"]
        tokens = torch.linalg.lstsq(at_tokens.mT, product, driver="gelsd").solution
        torch.linalg.lstsq(model.project.weight.detach(), tokens[1:].mT, driver="gelsd")

    rivals = {
        "public": public,
        "closed_form": lambda: closed_form.invert_gradient(model, shared),
        "april": lambda: april.invert_gradient(model, shared),
    }
    rows = [[process_time(work) for work in rivals.values()] for _ in range(rounds + 2)][2:]
    for name, own in zip(rivals, zip(*rows, strict=True), strict=True):
        ratio = statistics.median(row[0] / mine for row, mine in zip(rows, own, strict=True))
        print(f"  {name:11} {1e3 * statistics.median(own):6.1f} ms  {ratio:4.2f} times as fast as the public solver")


def step(rounds: int, encodings: list[str]) -> None:
    torch.set_num_threads(1)
    for encoding in encodings:
        torch.manual_seed(0)
        model = MODELS.build(SMALL, (3, 32, 32), 10, encoding).eval()
        label = torch.tensor([1])
        target = client_gradient(model, torch.randn(1, 3, 32, 32), label)
        matcher = GradientMatcher(model, target, label, None, "cosine", 1.0, 0.01, 0.0)
        bounds = torch.full((3, 1, 1), -2.0), torch.full((3, 1, 1), 2.0)
        start = torch.randn(1, 3, 32, 32)
        used = [name for name, g in target.items() if g.any()]
        wanted = torch.cat([target[name].flatten() for name in used])
        weights = [model.get_parameter(name) for name in used]

        def bare(model=model, label=label, wanted=wanted, weights=weights, start=start) -> None:
            x = start.clone().requires_grad_()
            for _ in range(10):
                loss = F.cross_entropy(model(x), label)
                found = torch.autograd.grad(loss, weights, create_graph=True)
                here = torch.cat([g.flatten() for g in found])
                torch.autograd.grad((here - wanted).square().sum(), x)

        def ours(matcher=matcher, start=start, bounds=bounds) -> None:
            matcher.optimize(start, bounds, 10, 0.1, 100)

        with double_backward_attention():
            pairs = [(process_time(ours), process_time(bare)) for _ in range(rounds // 10 + 2)][2:]
        ratio = statistics.median(a / b for a, b in pairs)
        milliseconds = [100 * statistics.median(column) for column in zip(*pairs, strict=True)]
        print(f"  {encoding:10} {milliseconds[0]:5.1f} / {milliseconds[1]:5.1f} ms per step, ratio {ratio:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["closed", "step"])
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--encodings", default="learned,rope,none")
    asked = parser.parse_args()
    if asked.what == "closed":
        closed(asked.rounds or 20)
    else:
        step(asked.rounds or 200, asked.encodings.split(","))
