"""`judge`: one submission, from its source to a verdict.

The order is: the source (gate), the build, the library (gate), the answers (right), the checker and
the audit (safe), the time (fast). The first stage with a finding ends it. All random numbers come
from the seed, and the truth is computed outside the sandbox, after the answer has arrived.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

import jitload
from lab.auditor.judging import judged
from lab.checker.run import prepare
from lab.judge import gate, gate_library, speed
from lab.judge.pipe import Pipe
from lab.judge.sandbox import SAY, Limit, Sandbox, end
from lab.judge.task import Task

ENTRY = "launch"
CASES = 24
MORE = 80, 200  # range for the number of extra small calls after the cases
SECONDS = 20.0  # limit for one call; builds and checks have BUILDS
BUILDS = 180.0
MEMORY = 4 << 30  # bytes
HOSTS = 2  # every task's kernels fetch at least 1/HOSTS of the bytes of its tensors
CUDA = 4 << 30  # additional bytes that CUDA itself holds
_GPU = threading.Lock()  # one timing at a time
ACCEPTED, REJECTED = "accepted", "rejected"
TYPES = {"float": "float32", "double": "float64", "__half": "float16", "half": "float16"}
TYPES |= {"__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16"}


@dataclass
class Verdict:
    """The judge's result for a submission.

    verdict: "accepted" or "rejected"; the command says "failed" if the judge itself did. stage: the
    last one reached: gate, build, right, safe, fast or done. findings: each with its stage, kind,
    line (0 for none) and message. notes: remarks in the same form. cases: the number of right
    calls. error: the largest, in halves of the allowed error. traffic: the bytes that a call
    fetches, and the floor: each byte of inputs and outputs once. time: seconds of one call, with
    its "clock", the reference's and the floor's; without a GPU the clock is "predicted", with an
    interval.
    """

    task: str
    submission: str
    seed: int
    verdict: str = REJECTED
    stage: str = "gate"
    findings: list[dict] = field(default_factory=list)
    cases: int = 0
    error: float = 0.0
    notes: list[dict] = field(default_factory=list)
    traffic: list[dict] = field(default_factory=list)
    time: dict | None = None
    sandbox: dict = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        return self.verdict == ACCEPTED

    def as_dict(self) -> dict:
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.submission}: {self.verdict}"]
        if self.accepted:
            lines[0] += f"; {self.cases} calls right"
            for it in self.traffic[-1:]:
                times = it["fetched"] / it["floor"]
                lines[0] += f"; predicted traffic {times:.2f} times the floor"
            lines[0] += f"; {speed.told(self.time)}"
        else:
            lines[0] += f" at stage {self.stage}"
        for it in (*self.findings, *self.notes):
            place = f"line {it['line']}: " if it["line"] else ""
            lines.append(f"  {it['kind']}: {place}{it['message']}")
        return "\n".join(lines)


def judge(
    task: str | Task,
    submission: str | Path,
    *,
    seed: int | None = None,
    cases: int = CASES,
    seconds: float = SECONDS,
    memory: int = MEMORY,
    gated: bool = True,
) -> Verdict:
    """Judge a CUDA C++ file by a task.

    task: the name of an op of reference.py, or a file with one @op. seed: for all random numbers;
    by default a fresh one, because whoever knows it knows the answers. cases: the number of calls.
    seconds: limit for one call. memory: limit in bytes for the submission's process. gated: False
    skips the gate's findings on source and library.

    Raises ValueError if there is no such task or no case, OSError if there is no such file.
    """
    if cases < 1:
        raise ValueError(f"cases: {cases}; wanted is one at least")
    task = task if isinstance(task, Task) else Task.of(task)
    path = Path(submission)
    text = path.read_text(errors="replace")  # once: the examined text is the compiled one
    box = Sandbox.here()
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    told = Verdict(task.op.name, path.name, seed)
    told.sandbox = {"kind": box.kind, "not_enforced": list(box.missing)}
    if gated and (found := gate.source(text)):
        told.findings = found
        return told
    with tempfile.TemporaryDirectory(prefix="judge-") as name:
        work = _Work(task, Path(name), box, told, seconds, memory, gated)
        source = Path(name) / "submission.cu"
        source.write_text(text)
        try:
            work.judge(source, seed, cases)
        except Limit as limit:
            told.findings.append(_finding(told.stage, "limit", str(limit)))
        except _Rejected as why:
            told.findings += why.findings
    return told


def build(submission: str | Path) -> dict:
    """Compile a file in the sandbox: its exports, or the first compiler error with its line."""
    told = Verdict("", Path(submission).name, 0, stage="build")
    with tempfile.TemporaryDirectory(prefix="judge-") as name:
        work = _Work(None, Path(name), Sandbox.here(), told, SECONDS, MEMORY, True)
        source = Path(name) / "submission.cu"
        source.write_text(Path(submission).read_text(errors="replace"))
        try:
            made = work._json(["build", str(source)], BUILDS)
        except Limit as limit:
            return {"error": str(limit), "line": 0}
        except _Rejected as why:
            return {"error": why.findings[0]["message"], "line": 0}
    return {"exports": made["exports"]} if "exports" in made else made


class _Rejected(Exception):
    def __init__(self, findings: list[dict]) -> None:
        super().__init__()
        self.findings = findings


def _finding(stage: str, kind: str, message: str, line: int = 0) -> dict:
    return {"stage": stage, "kind": kind, "line": line, "message": message}


@dataclass
class _Work:
    task: Task
    folder: Path
    box: Sandbox
    told: Verdict
    seconds: float
    memory: int
    gated: bool
    is_op: bool = False  # a PyTorch op instead of a function
    path: str = ""  # the task's name, or its file in the sandbox
    timing: dict = field(default_factory=dict)  # further options for lab.judge.speed.measured

    def judge(self, source: Path, seed: int, cases: int) -> None:
        self.told.stage = "build"
        self._prepare(source)
        built = self._json(["build", str(source)], BUILDS)
        if "error" in built:
            found = _finding("build", "compile", built["error"], built.get("line", 0))
            raise _Rejected([found])
        library = Path(built["library"])
        if self.folder not in library.resolve().parents:
            raise _Rejected([_finding("build", "compile", "the build is not in its own folder")])
        if ENTRY not in built["exports"]:
            wanted = f"{self.task.signature()}, or an op {self.task.schema()}"
            raise _Rejected([_finding("build", "signature", f"wanted is {wanted}")])
        if self.gated and (found := gate_library.library(library, source.read_text())):
            raise _Rejected(found)
        self.told.stage = "right"
        dtype = self._dtype(source)
        self._answers(source, dtype, seed, cases)
        self.told.stage = "safe"
        self._safe(source, dtype, seed)
        self.told.stage = "fast"
        if jitload.default_target() == "cuda":
            self._fast(source, dtype, seed)
        self.told.stage, self.told.verdict = "done", ACCEPTED

    def _prepare(self, source: Path) -> None:
        self.is_op = gate.is_op(source.read_text())
        self.path = self.task.op.name
        if self.task.path:
            self.path = str(shutil.copy(self.task.path, self.folder / "task.py"))

    def _dtype(self, source: Path) -> torch.dtype:
        """The type of the signature's first floating-point pointer."""
        text = jitload.blank(source.read_text())
        at = text.find(f" {ENTRY}(")
        head = text[at : text.find(")", at)]
        for word in head.replace("*", " ").replace("(", " ").replace(",", " ").split():
            if word in TYPES:
                return getattr(torch, TYPES[word])
        return torch.float32

    # ---- processes

    def _start(self, module: str, *words: str, target: str = "cpu") -> subprocess.Popen:
        known = [Path(it) for it in _caches()]
        cache = os.pathsep.join([str(self.folder / "cache"), *map(str, known)])
        line = [sys.executable, "-m", f"lab.judge.{module}", *words]
        more = {"JITLOAD_CACHE": cache, "JITLOAD_TARGET": target}
        if module == "runner":
            more["MALLOC_PERTURB_"] = "165"  # overwrite freed memory: no call finds old data
        return self.box.start(line, self.folder, known, **more)

    def _json(self, words: list[str], seconds: float) -> dict:
        """The JSON that a process prints.

        Raises Limit or _Rejected where it prints nothing.
        """
        process = self._start("build_process", *words)
        try:
            line = Pipe(process, self.memory).line(time.monotonic() + seconds)
        finally:
            end(process)
        try:
            return json.loads(line)
        except ValueError:
            said = self._errors() or "it ended without an answer"
            raise _Rejected([_finding(self.told.stage, "crash", said)]) from None

    def _errors(self) -> str:
        lines = (self.folder / "errors").read_text(errors="replace").strip().splitlines()
        # The submission can also print such a line.
        if lines and lines[-1].startswith(SAY) and not self.box.works():
            raise RuntimeError(f"the sandbox did not start: {lines[-1]}")
        return lines[-1][:300] if lines else ""

    # ---- right

    def _answers(self, source: Path, dtype: torch.dtype, seed: int, cases: int) -> None:
        process = self._start("runner", str(source), ENTRY)
        try:
            pipe = Pipe(process, self.memory)
            if pipe.line(time.monotonic() + BUILDS) != b"{}":
                raise _Rejected([_finding("right", "crash", self._errors() or "it does not load")])
            # Start with the call that is predicted, where it is also the first one of its process:
            # a submission that counts its calls cannot tell the two processes apart.
            self._answer(pipe, self._large(), dtype, seed, offset=False)
            for number, (sizes, value_seed) in enumerate(self.task.cases(seed, cases)):
                self._answer(pipe, sizes, dtype, value_seed, offset=number % 3 == 2)
                self.told.cases += 1
            # A random number of further calls: the submission cannot wait for the last one.
            dice = random.Random(f"{self.task.op.name} {seed} more")
            small = {n: v for n, v in self.task.known({}).items() if n in self.task.letters}
            for number in range(dice.randrange(*MORE)):
                self._answer(pipe, small, dtype, dice.randrange(1 << 40), offset=number % 3 == 2)
        finally:
            end(process)

    def _answer(
        self, pipe: Pipe, sizes: dict[str, int], dtype: torch.dtype, seed: int, offset: bool
    ) -> None:
        inputs = self.task.draw(sizes, dtype, seed)
        shapes = [(tuple(y.shape), y.dtype) for y in self.task.results(inputs)]
        said = {
            "inputs": [_told(t.shape, t.dtype, offset) for t in inputs.values()],
            "outputs": [_told(shape, kind, offset) for shape, kind in shapes],
            "sizes": self._numbers(sizes),
        }
        sent = json.dumps(said).encode() + b"\n" + b"".join(map(_bytes, inputs.values()))
        until = time.monotonic() + self.seconds
        pipe.send(sent)
        where = ", ".join(f"{n} = {v}" for n, v in sizes.items())
        try:
            answer = json.loads(pipe.line(until) or b"null")
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            said = self._errors() or "its process ended"
            raise _Rejected([_finding("right", "crash", f"{where}: {said}")])
        if "error" in answer:
            first = str(answer["error"]).partition("\n")[0]
            raise _Rejected([_finding("right", "raised", f"{where}: {first}")])
        got = [_tensor(pipe.bytes(_size(*it), until), *it) for it in shapes]
        back = [pipe.bytes(_size(tuple(t.shape), t.dtype), until) for t in inputs.values()]
        for (name, t), now in zip(inputs.items(), back, strict=True):
            if _bytes(t) != now:
                raise _Rejected(
                    [_finding("right", "input written", f"{where}: {name} has changed")]
                )
        self._compare(inputs, got, dtype, where)

    def _compare(
        self, inputs: dict[str, Tensor], got: list[Tensor], dtype: torch.dtype, where: str
    ) -> None:
        low = torch.float32 if dtype == torch.float64 else dtype

        def results(kind: torch.dtype, of: torch.dtype) -> list[Tensor]:
            given = {
                n: t.to(of).to(kind) if t.is_floating_point() else t for n, t in inputs.items()
            }
            return self.task.results(given)

        truths, bars = results(torch.float64, dtype), results(low, low)
        bar_truths = results(torch.float64, low)
        for i, (y, *others) in enumerate(zip(got, truths, bars, bar_truths, strict=True)):
            it = judged(f"output {i}" if len(got) > 1 else "output", y, *others)
            if it.wrong:
                raise _Rejected([_finding("right", "wrong", f"{where}: {it}")])
            if it.allowed:
                self.told.error = max(self.told.error, round(it.off / it.allowed, 6))

    def _numbers(self, sizes: dict[str, int]) -> list[int]:
        """The sizes that follow the tensors in a call: none for an op, which knows them."""
        return [] if self.is_op else self.task.sizes_of(sizes)

    def _large(self) -> dict[str, int]:
        """Sizes for the predicted call."""
        sizes = speed.sizes_for(self.task, speed.PREDICTED)
        return {n: v for n, v in sizes.items() if n in self.task.letters}

    # ---- safe, and the traffic

    def _safe(self, source: Path, dtype: torch.dtype, seed: int) -> None:
        calls = []
        large = self._large()
        small = ({"rows": r, "cols": c} for r, c in ((1, 1), (5, 33), (3, 1025), (64, 128)))
        for sizes in (*small, large):
            sizes = {n: v for n, v in sizes.items() if n in self.task.letters}
            inputs = self.task.draw(sizes, dtype, seed)
            outputs = self.task.results(inputs)
            calls.append(
                {
                    "inputs": list(inputs.values()),
                    "outputs": [(tuple(y.shape), y.dtype) for y in outputs],
                    "sizes": self._numbers(sizes),
                    "floor": sum(map(_count, (*inputs.values(), *outputs))),
                }
            )
        torch.save(calls, self.folder / "calls.pt")
        asked = {"seed": seed, "dtype": str(dtype).removeprefix("torch."), "op": self.is_op}
        words = [str(source), ENTRY, str(self.folder / "calls.pt"), self.path, json.dumps(asked)]
        said = self._json(["check", *words], BUILDS)
        self.told.notes = [{"stage": "safe", **it} for it in said["notes"]]
        if said["findings"]:
            raise _Rejected([{"stage": "safe", **it} for it in said["findings"]])
        *small, _ = calls
        self.told.traffic = [
            it | {"floor": call["floor"]} for it, call in zip(said["traffic"], small, strict=True)
        ]
        self._by_kernels()
        if it := said["predicted"]:
            floor = speed.Floor.of(self.task, large, dtype)
            gpu = speed.gpus.load(it["gpu"])
            least = floor.seconds(gpu, gpu.copy_gb_per_s, dtype)
            self.told.time = {"clock": "predicted", **it, "sizes": large, "floor": least}

    def _by_kernels(self) -> None:
        """Kernels must touch most of what a call reads and writes; else the host did the work."""
        for it in self.told.traffic:
            if it["fetched"] < it["floor"] / HOSTS:
                message = (
                    f"its kernels fetch {it['fetched']} bytes; inputs and outputs have"
                    f" {it['floor']}: what they leave out is computed elsewhere"
                )
                raise _Rejected([_finding("safe", "by the host", message)])

    # ---- fast, on a GPU

    def _fast(self, source: Path, dtype: torch.dtype, seed: int, device: str = "cuda") -> None:
        target = "cuda" if device == "cuda" else "cpu"
        built = self._json(["build", str(source), target], BUILDS)
        if "error" in built:
            found = _finding("build", "compile", built["error"], built.get("line", 0))
            raise _Rejected([found])
        text = source.read_text()
        if self.gated and (found := gate_library.asked(Path(built["library"]), text)):
            raise _Rejected(found)
        with _GPU, contextlib.ExitStack() as running:

            def start(role: str, asked: dict) -> Pipe:
                asked = asked | {"numbers": self._numbers(asked["sizes"])}
                words = (role, self.path, str(source), ENTRY, json.dumps(asked))
                process = self._start("rounds", *words, target=target)
                running.callback(end, process)
                return Pipe(process, self.memory + CUDA)

            options = {"device": device, "seed": seed, "seconds": self.seconds, "builds": BUILDS}
            try:
                self.told.time = speed.measured(start, self.task, dtype, **options, **self.timing)
            except speed.Rejected as why:
                raise _Rejected([_finding("fast", why.kind, why.message)]) from None


def _caches() -> list[str]:
    """Folders with builds of the simulator and its checker that the sandbox may read: otherwise
    each submission would compile them again, in its own time."""
    own = jitload.ensure(
        jitload.KERNELS / "square.cu", jitload.KERNELS / "square.cpp", target="cpu"
    )
    prepare()
    return [str(own.folder.parent)]


def _told(shape: tuple, dtype: torch.dtype, offset: bool) -> list:
    return [str(dtype).removeprefix("torch."), list(shape), int(offset)]


def _bytes(t: Tensor) -> bytes:
    return t.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _count(t: Tensor) -> int:
    return t.numel() * t.element_size()


def _size(shape: tuple, dtype: torch.dtype) -> int:
    return torch.Size(shape).numel() * dtype.itemsize


def _tensor(data: bytes, shape: tuple, dtype: torch.dtype) -> Tensor:
    data = data.ljust(_size(shape, dtype), b"\xa5")
    return (
        torch.frombuffer(bytearray(data), dtype=dtype).view(shape)
        if data
        else torch.empty(shape, dtype=dtype)
    )
