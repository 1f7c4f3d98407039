"""The side of a timing that works: one process for each of three roles, which answer alike.

submission  launches the submission's kernels
reference   calls the task's function; it is trusted
nothing     calls nothing, so its rounds are what a round costs besides; it is trusted

A round has several sets of inputs, more than L2 holds, so each call finds a cold one. "prepare"
draws them from a seed. "go" calls once for each set, waits for the GPU, and answers with sums of
the outputs under signs that are drawn from a number that only "go" tells: who answers before the
work is done cannot know them. The judge's clock runs from "go" to the answer.
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


def signs(count: int, secret: int, device: str) -> Tensor:
    dice = torch.Generator().manual_seed(secret)
    return (torch.randint(2, (count,), generator=dice) * 2 - 1).to(device, torch.float32)


def digest(t: Tensor, secret: int) -> float:
    """The sum of its elements under signs, in float64."""
    flat = t.reshape(-1)
    lines = -(-flat.numel() // SIGNS)
    if flat.numel() % SIGNS:
        flat = torch.nn.functional.pad(flat, (0, lines * SIGNS - flat.numel()))
    across, down = signs(SIGNS, secret, t.device), signs(lines, secret + 1, t.device)
    kind = torch.float64 if t.dtype in (torch.float64, torch.int64) else torch.float32
    sums = (flat.view(lines, SIGNS).to(kind) * across.to(kind)).sum(1, dtype=torch.float64)
    return float((sums * down).sum())


class Rounds:
    """The tensors of a round, and what is done with them.

    asked: {"sizes", "dtype", "sets", "device"}.
    """

    def __init__(self, task: Task, asked: dict) -> None:
        self.task, self.device = task, asked["device"]
        self.sizes, self.dtype = asked["sizes"], getattr(torch, asked["dtype"])
        self.count = asked["sets"]
        self.inputs: list[dict[str, Tensor]] = []
        self.outputs: list[list[Tensor]] = []

    def prepare(self, seed: int) -> dict:
        self.inputs = []
        for i in range(self.count):
            self.inputs.append(self.task.draw(self.sizes, self.dtype, seed + i, self.device))
        if not self.outputs:
            self.outputs = [
                [torch.empty_like(y) for y in self.task.results(it)] for it in self.inputs
            ]
        for t in (y for ys in self.outputs for y in ys):
            bytes_of(t).fill_(POISON)
        self.wait()
        return {}

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def digests(self, outputs: list[list[Tensor]], secret: int) -> list[list[float]]:
        return [[digest(y, secret) for y in ys] for ys in outputs]

    def truth(self, secret: int) -> dict:
        """The digests in float64, and how far off each may be."""
        kinds = {self.dtype, torch.float64}
        found: dict = {"digests": [], "allowed": []}
        for given in self.inputs:
            low, high = (
                self.task.results(
                    {n: t.to(k) if t.is_floating_point() else t for n, t in given.items()}
                )
                for k in (min(kinds, key=lambda k: k.itemsize), torch.float64)
            )
            found["digests"].append([digest(y, secret) for y in high])
            # The signs are random, so errors of single elements add up as a random walk does.
            each = [judged("", a, b, a, b).allowed for a, b in zip(low, high, strict=True)]
            found["allowed"].append(
                [
                    WRONG * 4 * max(a, torch.finfo(torch.float32).tiny) * max(y.numel(), 1) ** 0.5
                    for a, y in zip(each, high, strict=True)
                ]
            )
        return found


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
    launch = (
        getattr(jitload.load(Path(source), target=target), entry) if role == "submission" else None
    )
    numbers = asked["numbers"]

    def go(secret: int) -> dict:
        outputs = rounds.outputs
        if role == "reference":
            outputs = [rounds.task.results(it) for it in rounds.inputs]
        elif launch:
            for given, ys in zip(rounds.inputs, rounds.outputs, strict=True):
                launch(*given.values(), *ys, *numbers)
        rounds.wait()
        return {"digests": rounds.digests(outputs, secret)}

    does = {"prepare": rounds.prepare, "go": go, "truth": rounds.truth}
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
