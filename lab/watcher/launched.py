"""What the kernels take that a call launches on a GPU, as PyTorch's profiler names them."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

import jitload
from lab.watcher.result import Use


def launched(call: Callable[[], object], kernels: Iterable[jitload.Kernel]) -> tuple[Use, ...]:
    """Call it once, and say of each kernel of ours that it launches what one block takes.

    kernels: whose builds are looked into. A kernel that is launched several times counts once, with
    its largest block. PyTorch's own kernels are left out.
    """
    known = {use.kernel: use for kernel in kernels for use in kernel.resources(whole=False)}
    found: dict[str, Use] = {}
    for event in _launches(call):
        (name,) = jitload.plain_names([event["name"]]).values()
        use, facts = known.get(name), event["args"]
        if use is None:
            continue
        threads = math.prod(facts["block"])
        dynamic = max(facts.get("shared memory", 0) - use.shared, 0)
        occupancy = use.occupancy(threads, dynamic)
        if name not in found or found[name].threads < threads:
            found[name] = Use(name, threads, use.registers, use.spilled, occupancy)
    return tuple(found.values())


def _launches(call: Callable[[], object]) -> list[dict[str, Any]]:
    """The profiler's events of kernels: name, and in "args" block and shared memory."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return [event for event in events if event.get("cat") == "kernel"]
