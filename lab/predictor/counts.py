"""Counts the work of each launch of a call, on the simulator, in a sample of its blocks."""

from __future__ import annotations

import difflib
import math
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jitload
from lab.checker.places import TYPES
from lab.checker.report import Report
from lab.checker.run import checked
from lab.predictor import machine_code

SECTOR, WARP = 32, 32
COUNTED = ("requests", "asked", "sectors", "lines", "passes", "smooth")
COUNTED += ("earlier", "first", "written", "pairs", "to_warp", "touched", "pieces")
# Without optimization a loop's condition is its own basic block, with the loop's line.
COUNTS_STRETCHES = ("-fsanitize-coverage=trace-pc", "-fno-sanitize=thread", "-O0")
UNTRUSTED = {"timeout", "deadlock", "out of bounds", "raised", "freed memory"}


@dataclass
class Access:
    """A line's requests to one tensor or array, in a whole launch. Lists are as in reuse.h."""

    key: machine_code.Key
    size: int  # bytes of a lane
    region: int
    region_bytes: int
    requests: float
    asked: float
    sectors: float
    lines: float
    passes: float
    smooth: float
    in_block: list[float]
    by_blocks: list[float]
    earlier: float
    first: float
    written: float
    pairs: float
    to_warp: float
    touched: float
    pieces: float

    @property
    def is_shared(self) -> bool:
        return self.key[3] == "shared"


@dataclass
class Launch:
    """One launch. Counts are for all blocks, extrapolated from the recorded ones.

    registers, code: None where there is no machine code. stack: bytes of a thread's local memory.
    """

    kernel: str
    blocks: int
    threads: int
    recorded: int
    shared: int
    accesses: list[Access]
    barriers: float
    shuffles: float
    hottest: float
    products: dict[str, float]
    active: float = 0.0  # warps that ask for any global memory
    registers: int | None = None
    stack: int = 0
    code: machine_code.Code | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def warps(self) -> float:
        return self.blocks * math.ceil(self.threads / WARP)


@dataclass
class Counts:
    """The launches of a call, its report, and the bytes that it has to move at least.

    waits: for each wait of the host, the launches made by then, and how many were over.
    ended: kinds of lab.check's findings that ended blocks early, so that counts are incomplete.
    """

    launches: list[Launch]
    report: Report
    bytes: int
    waits: list[tuple[int, int]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)


def counts(
    call: tuple[Callable, tuple, dict],
    what: str,
    seconds: float,
    processors: int,
    compile: bool | None = True,
    skips: bool = True,
) -> Counts:
    """Run a call with its arguments under the checker.

    processors: multiprocessors of the GPU, by which kernels size their grids.
    compile: have nvcc make machine code; None: take what the cache has; False: do without.
    skips: blocks that are not recorded do not run, unless others wait for them or use what they
        write. Without it all run, and what the call returns is right.
    """

    def run(skips: bool) -> Report:
        options = {"seconds": seconds, "processors": processors, "skips": skips}
        return checked(what, call, jitload.instrumented, **options)

    try:
        report = run(skips)
        again = (
            skips
            and bool(UNTRUSTED - {"timeout"} & {*report.findings["kind"]})
            and bool((report.launches["recorded"] < report.launches["blocks"]).any())
        )
    except Exception:
        if not skips:
            raise
        again = True
    if again:
        report = run(False)
    functions = [] if compile is False else _gpu_builds(report, compile is True)
    ended = UNTRUSTED & {*report.findings["kind"]}
    launches = [_launch(it, report) for it in report._data["launches"]]
    for launch, it in zip(launches, report._data["launches"], strict=True):
        _add_code(launch, it, functions)
    if any(launch.code and launch.code.uncounted for launch in launches):
        counting = partial(jitload.instrumented, flags=COUNTS_STRETCHES)
        counted = checked(
            what, call, counting, seconds=seconds, processors=processors, skips=skips and not again
        )
        for launch, it in zip(launches, counted._data["launches"], strict=True):
            _add_code(launch, it, functions, _runs_of_lines(it, counted))
        ended |= UNTRUSTED & {*counted.findings["kind"]}
    waits = [(it["made"], it["over"]) for it in report._data["host_waits"]]
    return Counts(launches, report, _floor(launches, report), waits, sorted(ended))


def _runs_of_lines(it: dict[str, Any], report: Report) -> dict[tuple[str, int], float]:
    """How often the warps of a whole launch executed each line."""
    factor = it["blocks"] / max(it["recorded"], 1)
    runs: dict[tuple[str, int], float] = defaultdict(float)
    for each in it["ran"]:
        file, line, inlined = report._places.place(each["library"], each["offset"])
        if not inlined:  # a function that the line calls may have its own loops
            runs[file, line] = max(runs[file, line], factor * each["runs"])
    return dict(runs)


def _floor(launches: list[Launch], report: Report) -> int:
    """The bytes that the call reads and writes in tensors that outlive it, each counted once."""
    regions: dict[tuple[int, bool], float] = {}
    for launch in launches:
        for it in launch.accesses:
            if not it.is_shared:
                key = it.region, it.key[2] != "read"
                touched = it.written if key[1] else it.first + it.earlier
                seen = regions.get(key, 0) + SECTOR * touched
                regions[key] = min(seen, it.region_bytes)
    counted = {
        index
        for index, region in enumerate(report._data["regions"])
        if region["name"] or TYPES[region["type"]] == "given"
    }
    moved = {key: size for key, size in regions.items() if key[0] in counted}
    # If a call creates all of its tensors itself, none outlives it: then all count.
    return int(sum((moved or regions).values()))


def _launch(it: dict[str, Any], report: Report) -> Launch:
    data, factor = report._data, it["blocks"] / max(it["recorded"], 1)
    accesses = []
    for reuse in it["reuse"]:
        site, region = data["sites"][reuse["site"]], data["regions"][reuse["region"]]
        if TYPES[region["type"]] == "device" and report._places.is_constant(region["name"]):
            continue  # the constant cache provides an operand of one word a cycle to a warp
        file, line, _ = report._places.sites[reuse["site"]]
        memory = "shared" if TYPES[region["type"]] == "shared" else "global"
        # Accesses that a trace had no room for are taken to be like the kept ones of their site.
        scale = factor * (1 + reuse["left_out"] / max(reuse["asked"], 1))
        number = {name: scale * reuse[name] for name in COUNTED}
        accesses.append(
            Access(
                key=(file, line, site["access"], memory),
                size=site["size"],
                region=reuse["region"],
                region_bytes=region["bytes"],
                in_block=[scale * n for n in reuse["in_block"]],
                by_blocks=[scale * n for n in reuse["by_blocks"]],
                **number,
            )
        )
    threads = math.prod(it["block"])
    return Launch(
        kernel=it["full_name"] or it["kernel"],
        blocks=it["blocks"],
        threads=threads,
        recorded=it["recorded"],
        shared=it["shared"] + _static_shared(it, data),
        accesses=accesses,
        barriers=factor * it["barriers"] * math.ceil(threads / WARP),
        shuffles=factor * it["shuffles"],
        hottest=factor * it["hottest"],
        active=factor * it["warps"],
        products={each["types"]: factor * each["operations"] for each in it["products"]},
    )


def _static_shared(it: dict[str, Any], data: dict[str, Any]) -> int:
    """Bytes of the shared arrays that the launch used; from ptxas, if there is machine code."""
    used = {reuse["region"] for reuse in it["reuse"]}
    found = [data["regions"][index] for index in used]
    return sum(
        region["bytes"]
        for region in found
        if TYPES[region["type"]] == "shared" and region["name"] != "dynamic shared memory"
    )


def _gpu_builds(report: Report, compile: bool) -> list[jitload.Build]:
    """A GPU build of each kernel file that ran; none if nvcc is missing."""
    builds = []
    for kernel in jitload.loaded():
        instrumented = kernel._instrumented
        if instrumented is None or instrumented[2].build not in report._builds:
            continue
        try:
            builds.append(kernel.for_gpu(compile))
        except (jitload.CompileError, jitload.MissingTool, RuntimeError):
            continue
    return [build for build in builds if build]


def _add_code(
    launch: Launch,
    it: dict[str, Any],
    builds: list[jitload.Build],
    ran: dict[tuple[str, int], float] | None = None,
) -> None:
    """ran: how often warps executed each line, if that was counted."""
    found = _function(launch, builds)
    if not found:
        launch.notes.append("no machine code")
        return
    build, function, use = found
    launch.code = machine_code.read(function, build.users_file)
    requests: dict[machine_code.Key, tuple[float, int]] = {}
    for access in launch.accesses:
        before = requests.get(access.key, (0.0, access.size))
        requests[access.key] = before[0] + access.requests, min(before[1], access.size)
    machine_code.count(launch.code, requests, launch.warps, launch.shuffles, launch.barriers, ran)
    if use:
        launch.registers, launch.stack = use.registers, use.stack
        launch.shared = it["shared"] + use.shared


def _function(launch: Launch, builds: list[jitload.Build]) -> tuple[Any, Any, Any] | None:
    """The build, function and resources of a launch's kernel.

    Among a template's instances it takes the one with the most similar name; if the launch does not
    give its arguments, the one whose instructions request as many bytes per line as the lanes did.
    """
    plain = _plain(launch.kernel)
    alike = [
        (build, function)
        for build in builds
        for function in build.machine_code()
        if _plain(function.name) == plain and function.architecture.startswith("sm_9")
    ]
    if not alike:
        return None
    deduced = "<" not in launch.kernel and len(alike) > 1
    kernel = _normal(launch.kernel)

    def unlike(it: tuple[Any, Any]) -> tuple[float, float]:
        build, function = it
        code = machine_code.read(function, build.users_file) if deduced else None
        ratio = difflib.SequenceMatcher(None, _normal(function.name), kernel).ratio()
        return _other_bytes(code, launch) if code else 0.0, -ratio

    best = min(alike, key=unlike)
    build, function = best
    uses = [
        use
        for use in jitload.uses(build.log())
        if use.kernel == function.name and use.architecture == function.architecture
    ]
    return build, function, uses[0] if uses else None


def _other_bytes(code: machine_code.Code, launch: Launch) -> float:
    """The difference in bytes between the instructions and the lanes' requests, in doublings."""
    sizes: dict[machine_code.Key, set[int]] = {}
    for access in launch.accesses:
        sizes.setdefault(access.key, set()).add(access.size)
    asked = [
        min(abs(math.log2(it.bytes / size)) for size in sizes[it.key])
        for stretch in code.stretches
        for it in stretch.instructions
        if it.key in sizes
    ]
    return sum(asked) if asked else math.inf


def _plain(name: str) -> str:
    return name.partition("<")[0].rpartition("::")[2].strip()


def _normal(name: str) -> str:
    """Template arguments in a form common to both compilers."""
    name = re.sub(r"\((?:int|bool|unsigned int|unsigned)\)", "", name)
    for ours, theirs in (("__nv_bfloat16", "BFloat16"), ("__half", "Half"), ("c10::", "")):
        name = name.replace(ours, theirs)
    name = name.replace("simulator::", "").replace("true", "1").replace("false", "0")
    return re.sub(r"\s|u\b|\b(\d+)u?l*\b", lambda m: m[1] or "", name)
