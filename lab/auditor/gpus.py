"""Traps that need a GPU, or two: streams, CUDA graphs, another device."""

from __future__ import annotations

import torch

from lab.auditor.example import Call
from lab.auditor.judging import results
from lab.auditor.subject import Found, NotRun, Subject


def _call(subject: Subject, gpus: int = 1) -> Call:
    if torch.cuda.device_count() < gpus:
        raise NotRun("there is no GPU here" if gpus == 1 else "there is no second GPU here")
    call = subject.example.draw(seed=subject.seed + 111, check=True) or subject.example.call
    if not all(call.leaves[i].is_cuda for i in call.tensors):
        raise NotRun("the example's tensors are on the CPU")
    return call


def stream(subject: Subject) -> str:
    """On another stream, behind a long-running kernel: the op must wait for its inputs."""
    call = _call(subject)
    late = call.mapped(torch.zeros_like)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), subject.speaking(call), torch.no_grad():
        torch.cuda._sleep(100_000_000)
        for i in call.tensors:
            late.leaves[i].copy_(call.leaves[i])
        outputs = late.run(subject.function)
        kept = [y.clone() for y in outputs]
    torch.cuda.synchronize()
    from lab.auditor.judging import named

    for it in subject.judgements(call, named(kept), []):
        if it.wrong:
            raise Found(f"on another stream {it}", call)
    return ""


def graph(subject: Subject) -> str:
    """Captured into a CUDA graph and replayed with new data at the same addresses."""
    call, other = _call(subject), subject.example.draw(seed=subject.seed + 112, check=True)
    given = call.cloned()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            given.run(subject.function)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with subject.speaking(call), torch.no_grad():
        with torch.cuda.graph(captured):
            outputs = given.run(subject.function)
        for y in outputs:
            y.fill_(7)
        for i in given.tensors:  # not earlier: an output may be an input
            given.leaves[i].copy_((other or call).leaves[i])
        captured.replay()
        torch.cuda.synchronize()
    from lab.auditor.judging import named

    for it in subject.judgements(other or call, named(outputs), []):
        if it.wrong:
            raise Found(f"replayed from a CUDA graph {it}", call)
    return ""


def device(subject: Subject) -> str:
    """Tensors on the second GPU while the first is current."""
    call = _call(subject, 2)
    moved = call.mapped(lambda t: t.to("cuda:1"))
    with torch.cuda.device(0), subject.speaking(moved):
        got = results(subject.function, moved.cloned())
    for name, y in got.items():
        if y.device.index != 1:
            raise Found(f"{name} is on {y.device}, its inputs on cuda:1", moved)
    for it in subject.judgements(moved, got, []):
        if it.wrong:
            raise Found(f"on the second GPU {it}", moved)
    return ""
