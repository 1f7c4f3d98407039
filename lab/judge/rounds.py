"""The worker of a timing: one process for each of three roles, with the same protocol.

submission  launches the submission's kernels
reference   calls the task's function; it is trusted
nothing     calls nothing, so it measures the overhead of a round; it is trusted

A round has several sets of inputs, larger than L2 together, so each call finds a cold cache.
"prepare" draws them from a seed. "go" calls once for each set, waits for the GPU and answers; the
judge's clock runs meanwhile. "sums" answers with sums of the outputs, with random signs drawn from
the number in the request. The sums are of copies that "go" makes right after its wait, so later
writes do not count. If "sums" takes longer than in the process that calls nothing, the
difference is added to the time.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch import Tensor

import jitload
from lab.auditor.judging import WRONG, judged
from lab.judge.runner import POISON, bytes_of
from lab.judge.task import Task
from lab.measure.timing import copy_bandwidth

SIGNS = 4096
TINY = torch.finfo(torch.float32).tiny


def signs(count: int, secret: int, device: str) -> Tensor:
    dice = torch.Generator().manual_seed(secret)
    return (torch.randint(2, (count,), generator=dice) * 2 - 1).to(device, torch.float32)


def digest(t: Tensor, secret: int) -> float:
    """The sum of the elements with random signs, in float64."""
    flat = t.reshape(-1)
    lines = -(-flat.numel() // SIGNS)
    if flat.numel() % SIGNS:
        flat = torch.nn.functional.pad(flat, (0, lines * SIGNS - flat.numel()))
    across, down = signs(SIGNS, secret, t.device), signs(lines, secret + 1, t.device)
    kind = torch.float64 if t.dtype in (torch.float64, torch.int64) else torch.float32
    sums = (flat.view(lines, SIGNS).to(kind) * across.to(kind)).sum(1, dtype=torch.float64)
    return float((sums * down).sum())


class Rounds:
    """The tensors of a round, and the operations on them.

    asked: {"sizes", "dtype", "sets", "device"}.
    """

    def __init__(self, task: Task, asked: dict) -> None:
        self.task, self.device = task, asked["device"]
        self.sizes, self.dtype = asked["sizes"], getattr(torch, asked["dtype"])
        self.count = asked["sets"]
        self.inputs: list[dict[str, Tensor]] = []
        self.outputs: list[list[Tensor]] = []
        self.copies: list[list[Tensor]] = []
        self.off: list[float] = []  # the allowed error of each output's sum

    def prepare(self, seed: int) -> dict:
        """Draw new inputs at the same addresses: this exposes results cached by address."""
        for i in range(self.count):
            drawn = self.task.draw(self.sizes, self.dtype, seed + i, self.device)
            if i == len(self.inputs):
                self.inputs.append(drawn)
            for name, t in drawn.items():
                self.inputs[i][name].copy_(t)
        if not self.outputs:
            self.outputs = [self._empty() for _ in self.inputs]
        for t in (y for ys in self.outputs for y in ys):
            bytes_of(t).fill_(POISON)
        self.wait()
        return {}

    def _empty(self) -> list[Tensor]:
        """Memory for a call's outputs; the reference is not computed."""
        given = {n: t.to("meta") for n, t in self.inputs[0].items()}
        return [torch.empty_like(y, device=self.device) for y in self.task.results(given)]

    def outputs_of_reference(self) -> list[list[Tensor]]:
        return [self.task.results(it) for it in self.inputs]

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def keep(self) -> None:
        """Enqueue copies of the outputs: later writes do not count."""
        self.copies = [[y.clone() for y in ys] for ys in self.outputs]

    def sums(self, secret: int) -> dict:
        return {"sums": [[digest(y, secret) for y in ys] for ys in self.copies]}

    def truth(self, secret: int) -> dict:
        """The sums in float64, and the allowed error of each."""
        found: dict = {"sums": [], "allowed": []}
        for given in self.inputs:
            high = self._results(given, torch.float64)
            found["sums"].append([digest(y, secret) for y in high])
            low = self._results(given, self.dtype) if not self.off else []
            # The signs are random, so the errors of elements add up as in a random walk.
            self.off = self.off or [
                WRONG * 8 * max(judged("", a, b, a, b).allowed, TINY) * max(a.numel(), 1) ** 0.5
                for a, b in zip(low, high, strict=True)
            ]
            found["allowed"].append(self.off)
        return found

    def _results(self, given: dict[str, Tensor], kind: torch.dtype) -> list[Tensor]:
        floats = {n: t.to(kind) for n, t in given.items() if t.is_floating_point()}
        return self.task.results(given | floats)


def main(role: str, task: str, source: str, entry: str, words: str) -> None:
    """Answer requests until there are no more."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    quiet = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(quiet, number)
    jitload.announce(False)
    asked = json.loads(words)
    rounds = Rounds(Task.of(task), asked)
    target = "cuda" if asked["device"] == "cuda" else "cpu"
    launch = None
    if role == "submission":
        launch = getattr(jitload.load(Path(source), target=target), entry)
    numbers = asked["numbers"]

    def go(_: int) -> dict:
        if role == "reference":
            rounds.outputs_of_reference()
        elif launch:
            for given, ys in zip(rounds.inputs, rounds.outputs, strict=True):
                launch(*given.values(), *ys, *numbers)
        rounds.wait()
        rounds.keep()
        return {}

    does = {"prepare": rounds.prepare, "go": go, "sums": rounds.sums, "truth": rounds.truth}
    does["copy"] = lambda _: {"gb_per_s": copy_bandwidth(), "gpu": torch.cuda.get_device_name()}

    def answer(said: dict) -> None:
        answers.write(json.dumps(said).encode() + b"\n")
        answers.flush()

    answer({})
    while line := requests.readline():
        ((what, number),) = json.loads(line).items()
        try:
            answer(does[what](number))
        except Exception as error:
            answer({"error": str(error)[:500]})


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)
