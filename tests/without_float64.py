"""A device without float64, as MPS is, on the CPU: the tensors that are on it are marked."""

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE, CPU = torch.device("mps"), torch.device("cpu")
MIXES = (Tensor.copy_, Tensor.__setitem__, Tensor.__getitem__)  # which take tensors of two devices


class WithoutFloat64(TorchFunctionMode):
    """Context manager in which marked tensors are on `DEVICE`, and so is what is computed from them.

    Raises a TypeError for a float64 tensor on that device, and for an operation on tensors of both devices.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Computes a function on the CPU and marks its result if it is on the device."""
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        tensors = [one for one in leaves if isinstance(one, Tensor)]
        on_device = any(hasattr(one, "marked") for one in tensors)
        if getattr(func, "__self__", None) is Tensor.device:
            return DEVICE if on_device else CPU
        if func is torch.device:
            return func(*args, **kwargs)
        if func in (Tensor.cpu, Tensor.to):
            target = args[1] if len(args) > 1 else None
            stays = hasattr(args[0], "marked") and func is Tensor.to
            on_device = {CPU: False, DEVICE: True}.get(target, stays) if isinstance(target, torch.device) else stays
            on_device = hasattr(target, "marked") if isinstance(target, Tensor) else on_device
        elif on_device and func not in MIXES and not all(hasattr(one, "marked") or not one.ndim for one in tensors):
            raise TypeError(f"{func.__name__} of tensors on two devices")
        on_device |= any(isinstance(one, torch.device) and one == DEVICE for one in leaves)
        moved = args[0] if func in (Tensor.cpu, Tensor.to) else None

        def on_cpu(one):
            if isinstance(one, torch.device):
                return CPU
            return one.view_as(one) if moved is not None and one is moved else one  # a new object, with or without mark

        args, kwargs = tree_map(on_cpu, (args, kwargs))
        result = func(*args, **kwargs)
        return tree_map(mark, result) if on_device else result


def mark(value):
    """Marks a tensor as one on the device; returns other values unchanged."""
    if isinstance(value, Tensor):
        if value.dtype == torch.float64:
            raise TypeError("a float64 tensor on a device that has none")
        value.marked = True
    return value


def put_on_device(model):
    """Marks the weights and buffers of a model, and returns it."""
    for tensor in (*model.parameters(), *model.buffers()):
        mark(tensor)
    return model
