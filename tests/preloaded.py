"""What the server of `tests.processes` has imported and read before it forks: torch alone takes seconds."""

import jinja2  # noqa: F401
import matplotlib.backends.backend_agg  # noqa: F401
import rich.table  # noqa: F401
import safetensors.torch  # noqa: F401
import torch._dynamo  # noqa: F401  # imported by every optimizer

from vitpos.data.mnist import mnist

mnist()
