"""What the server of `tests.processes` has done before it forks: imported torch and the package, read MNIST, drawn text."""

import io

import torch._dynamo  # noqa: F401  # every optimizer imports it
from matplotlib.figure import Figure

import vitpos.cli.inspect  # noqa: F401
import vitpos.inspection.inspect  # noqa: F401
import vitpos.lab.runner  # noqa: F401
import vitpos.report.inspection_page  # noqa: F401
import vitpos.report.page  # noqa: F401
from vitpos.data.mnist import mnist

mnist()
figure = Figure()
figure.add_subplot(title="text")
figure.savefig(io.BytesIO(), format="svg")
