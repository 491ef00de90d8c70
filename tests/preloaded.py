"""What the server of `tests.processes` has done before it forks: imported torch and the package, read MNIST, drawn text."""

import io

import torch._dynamo  # noqa: F401  # every optimizer imports it
from matplotlib.figure import Figure

import vitpos.cli.inspect
import vitpos.inspection.inspect
import vitpos.lab.runner
import vitpos.report.inspection_page
import vitpos.report.page  # noqa: F401
from vitpos.data.mnist import mnist

mnist()
figure = Figure()
figure.add_subplot(title="text")
figure.savefig(io.BytesIO(), format="svg")
