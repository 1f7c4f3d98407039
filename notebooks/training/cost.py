"""What a training step costs, by kind of work: counted in bytes, measured in seconds.

with Traffic() as counted:
    model(tokens, targets).sum().backward()
counted.bytes["loss"]                     # the least that the ops of that kind have to move
rows = profiled(step)                     # what torch.profiler found, op by op
seconds_by_kind(rows)["loss"]
copy_rate, product_rate = rates()         # what bytes and products take at least
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import jitload
import lab
from lab.measure import bytes_moved

# The first whose expression is in an op's name: PyTorch's as a step on a GPU calls them, ours as
# NAME_DIGEST::forward. Additions are those of the stream and of its gradients.
_NAMES = {
    "attention": r"scaled_dot_product|_(flash|efficient|cudnn)_attention|^attention_\w+::",
    "products": r"aten::(mm|addmm|bmm|baddbmm)\b|^matmul_\w+::",
    "norms": r"layer_norm|rms_norm|dropout|bernoulli|aten::(add|add_)\b",
    "activation": r"silu|swiglu|aten::mul\b",
    "loss": r"softmax|nll_loss|cross_entropy",
    "optimizer": r"_foreach|_fused_adam|Optimizer",
}
KINDS = (*_NAMES, "rest")


def kind_of(op: str) -> str:
    """The kind of work that an op of this name does; "rest" if none is known."""
    return next((kind for kind, names in _NAMES.items() if re.search(names, op)), "rest")


class Traffic(TorchDispatchMode):
    """Notes, while it is on, the ops that PyTorch's dispatcher calls, backward's too.

    ops: (name, reads, writes), in order; the tensors stay as long as this does. A view moves
    nothing and is none of them. bytes: by kind, what the ops have to move at least: the tensors of
    each once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[tuple[str, list[Tensor], list[Tensor]]] = []

    @property
    def bytes(self) -> Counter[str]:
        counted: Counter[str] = Counter()
        for name, reads, writes in self.ops:
            counted[kind_of(name)] += bytes_moved(reads, writes)
        return counted

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        reads, writes = _tensors((args, kwargs)), _tensors(result)
        given = {tensor.untyped_storage().data_ptr() for tensor in reads}
        if "nll_loss" in function.name():  # of the logarithms it reads one a row, or none
            reads = [tensor for tensor in reads if tensor.dim() < 2]
        if not function._schema.is_mutable:
            writes = [t for t in writes if t.untyped_storage().data_ptr() not in given]
        if writes and "empty" not in function.name():
            self.ops.append((function.name(), reads, writes))
        return result


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def rates() -> tuple[float, float]:
    """Bytes a second of a large copy, and operations a second of a large product in bfloat16.

    As measured on this GPU, with PyTorch's product; without a GPU, those of an imagined one.
    """
    if jitload.device().type != "cuda":
        return 4e12, 700e12
    a, b = torch.randn(2, 8192, 8192, device="cuda").bfloat16()
    return 1e9 * lab.copy_bandwidth(), 2 * 8192**3 / lab.time_call(lambda: a @ b).median


@dataclass(frozen=True)
class Row:
    """One op in a profile of a step. seconds: its own, without those of the ops that it calls."""

    op: str
    kind: str
    calls: float
    seconds: float


def profiled(step: Callable[[], object], steps: int = 3) -> list[Row]:
    """What the ops of one step take, the longest first: of the GPU's time, or else the CPU's.

    A kernel counts for the innermost op of a known kind around its launch.
    """
    on_gpu = jitload.device().type == "cuda"
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler tells when it begins
    step()
    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * on_gpu]) as found:
        for _ in range(steps):
            step()
        if on_gpu:
            torch.cuda.synchronize()
    calls: Counter[str] = Counter()
    micros: Counter[str] = Counter()
    for event in found.events():
        if event.device_type == DeviceType.CPU:
            name = owner_of(event)
            micros[name] += event.self_device_time_total if on_gpu else event.self_cpu_time_total
            calls[name] += event.name == name
    return [
        Row(op, kind_of(op), calls[op] / steps, 1e-6 * own / steps)
        for op, own in micros.most_common()
        if own
    ]


def owner_of(event: Any) -> str:
    """What an event counts for: an optimizer around it, or the innermost op of a known kind."""
    names = [event.name]
    while event := event.cpu_parent:
        names.append(event.name)
    known = [name for name in names if kind_of(name) != "rest"]
    optimizer = [name for name in known if name.startswith("Optimizer.")]
    return [*reversed(optimizer), *known, *names][0]


def seconds_by_kind(rows: Iterable[Row]) -> dict[str, float]:
    seconds = dict.fromkeys(KINDS, 0.0)
    for row in rows:
        seconds[row.kind] += row.seconds
    return seconds
