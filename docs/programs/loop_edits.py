"""Print how long it takes from an edit of a kernel to its result, as a table in Markdown.

    .venv/bin/python -m docs.programs.loop_edits               of all kernels, for the CPU and sm_90
    .venv/bin/python -m docs.programs.loop_edits cpu           for one of the two
    .venv/bin/python -m docs.programs.loop_edits sm_90 NAME    those with NAME in theirs

Each plays in a process of its own: a cold build, edits of the .cu with a call of one version after
each, the return to what it was, and a cell that is run again. An edit is another constant at the
end of the file, which nothing but kernels may name; one that is named beside them, too; or another
line in each kernel. After the first edit of each kind five seconds pass, in which the background
may compile the launchers by themselves. On a machine without a GPU `sm_90` ends with a library in
which the kernels that the call launches could be launched.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import textwrap
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import NamedTuple

from docs.programs.loop import conditions
from docs.programs.loop_seconds import ON_GPU, build_runtime, play
from docs.programs.page import ROOT, duration, table
from toolchain import machine

RUNS = 5  # edits of each kind


@dataclass(frozen=True)
class Case:
    """A kernel that is edited.

    Attributes:
        call: of one version, as Python writes it; x is [64, 1024] and w [1024], of float32;
            half is x in bfloat16.
        launched: what is in the names of the kernels that the call launches, and of no others.
        wanted: seconds from an edit to the result, for the CPU, for sm_90 on two cores, and on an
            H200's machine.
        file: the .cu, without its suffix; "" for the case's name.
    """

    call: str
    launched: str
    wanted: tuple[float, float, float | None]
    file: str = ""


THREE_LINES = """
extern "C" __global__ void scale(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 3 * x[i];
}
"""
PRODUCT = "kernel.infer({0}, {0}, None, None, 1.0, 0, False, 7)"
ATTENTION = "kernel.infer(*[{0}.view(1, 16, 64, 64)] * 3, 1 << 30, 1 << 30, 0.125, 4)"
NORM = "forward_vector<float, true>"
FEW_ROWS = "matmul_few_rows<FewRowsUntransposed<BFloat16, 64, 4, false>"
OF_PRODUCTS = (1.5, 2.5, None)
CASES = {
    "three_lines": Case("kernel.scale[256, 256](x, y, x.numel())", "", (0.15, 0.4, 0.5)),
    "square": Case("kernel.forward(x, 1)", "forward_vector<float>", (0.5, 0.6, 0.8)),
    "softmax": Case("kernel.forward(x, 4)", NORM, (1.0, 1.5, 2.0)),
    "layer_norm": Case("kernel.infer(x, w, w, 1e-5, 4)", NORM, (1.0, 1.5, 2.0)),
    "rms_norm": Case("kernel.infer(x, w, 1e-5, 4)", NORM, (1.0, 1.5, None)),
    "matmul": Case(PRODUCT.format("x"), "matmul_registers<float, true, true, 4>", OF_PRODUCTS),
    "matmul, bfloat16": Case(PRODUCT.format("half"), FEW_ROWS, OF_PRODUCTS, "matmul"),
    "attention": Case(ATTENTION.format("x"), "forward_online<float, 64, Attention>", OF_PRODUCTS),
    "attention, bfloat16": Case(
        ATTENTION.format("half"),
        "forward_wgmma<BFloat16, 64, false, Attention>",
        OF_PRODUCTS,
        "attention",
    ),
}
EDIT, IN_KERNEL, BESIDE = "edit to result", "edit in a kernel", "edit beside kernels"
STEPS = ("cold build", EDIT, IN_KERNEL, BESIDE, "return to an earlier version", "unchanged cell")

SESSION = """
    import json, re, resource, time
    from pathlib import Path

    import torch

    import jitload
    from jitloader import background

    source = Path("{name}.cu")
    sources = [path for path in (source, source.with_suffix(".cpp")) if path.exists()]
    x = torch.ones(64, 1024, device={device!r})
    y, w, half = torch.empty_like(x), x[0], x.bfloat16()
    {result}
    def processor():
        used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(each.ru_utime + each.ru_stime for each in used)

    def timed(step):
        background.stop()
        begun, used = time.perf_counter(), processor()
        result()
        print(json.dumps([step, time.perf_counter() - begun, processor() - used]), flush=True)

    timed({steps[0]!r})
    files = {{path: path.read_text() for path in [source, *Path().glob("{name}_*.cuh")]}}
    named = "static_assert({edited} >= 0);"

    def edit_all(step, change):
        for edit in range({edits} + 1):
            constant = f"constexpr int {edited} = {{edit}};"
            for path, text in files.items():
                path.write_text(change(path, text, constant))
            timed(step if edit else "the first: " + step)
            edit or background.wait(5)

    edit_all({steps[1]!r}, lambda path, text, it: text + f"{{it}}\\n" * (path == source))
    edit_all({steps[2]!r}, lambda path, text, it: re.sub(
        r"(__global__[^;{{]*{{)", rf"\\1 [[maybe_unused]] {{it}}", text))
    edit_all({steps[3]!r}, lambda path, text, it: text + f"{{it}} {{named}}\\n" * (path == source))
    for path, text in files.items():
        path.write_text(text)
    timed({steps[4]!r})
    for _ in range(5):
        timed({steps[5]!r})
"""
RUN = """
    def result():
        kernel = jitload.load(*sources, target={target!r}, include=["include"])
        {call}
        torch.accelerator.is_available() and torch.accelerator.synchronize()
"""
# For a GPU that is not here: what the call would launch is noted as if it had been launched.
BUILD = """
    from jitloader import lazy_kernels, lazy_launchers
    from jitloader.arguments import recipe_of
    from jitloader.building import build_of, cached
    from jitloader.cache import Cache
    from jitloader.inputs import Inputs
    from toolchain.notes import write_note
    from toolchain.parts import demangled_names

    recipe = recipe_of(sources, None, "cuda", (), ["include"], None)

    def result():
        inputs = Inputs.read(recipe, Cache.here())
        build = cached(inputs, in_parts=True) or lazy_kernels.begun(inputs) or build_of(inputs)
        named = zip(build.launchers, demangled_names(list(build.launchers)))
        launched = [symbol for symbol, name in named if {launched!r} in name]
        if launched:
            write_note(lazy_launchers._note_of(inputs), {{"launchers": launched}})
"""

# Others' ways of compiling the three lines while the program runs, by NVRTC.
RIVALS = {
    "cupy.RawKernel": """
        import cupy

        def run(text):
            kernel = cupy.RawKernel(text, "scale")
            arguments = (cupy.from_dlpack(x), cupy.from_dlpack(y), cupy.int32(x.numel()))
            kernel((256,), (256,), arguments)
    """,
    "torch.cuda._compile_kernel": """
        def run(text):
            kernel = torch.cuda._compile_kernel(text, "scale")
            kernel(grid=(256, 1, 1), block=(256, 1, 1), args=(x, y, x.numel()))
    """,
}
RIVALS_SESSION = """
    import json, time
    import torch

    x = torch.ones(64, 1024, device="cuda")
    y = torch.empty_like(x)
    {define}
    for edit in range({edits} + 1):  # the first one loads NVRTC
        begun = time.perf_counter()
        run({text!r}.replace("3 *", f"{{edit + 4}} *"))
        torch.cuda.synchronize()
        if edit:
            print(json.dumps(["edit to result", time.perf_counter() - begun, 0.0]), flush=True)
"""


class Taken(NamedTuple):
    """The medians of a step, in seconds of the clock and of processors."""

    clock: float
    processor: float


Medians = dict[str, Taken]  # by step


def main(target: str = "", name: str = "") -> None:
    started = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - started:6.1f} s  {text}", flush=True)

    load = os.getloadavg()[0]
    found = edits_table(measure(say, target, name))
    print(f"\n{conditions(load)}\n\n{found}")


def measure(say: Callable[[str], None], target: str, only: str) -> dict[str, dict[str, Medians]]:
    """Of each kernel with `only` in its name, by target; `say` is told each step's.

    target: of two only this one, unless it is "".
    """
    found: dict[str, dict[str, Medians]] = defaultdict(dict)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for part in (ROOT / "kernels").rglob("*.[ch]*"):
            copied = folder / ("include" if part.parent.name == "include" else "") / part.name
            copied.parent.mkdir(exist_ok=True)
            shutil.copy(part, copied)
        (folder / "three_lines.cu").write_text(THREE_LINES)
        if target != "sm_90":
            build_runtime(folder)
        for name, shown, session in sessions(target, only):
            steps = defaultdict(list)
            for step, clock, processor in play(session, folder):
                steps[step].append(Taken(clock, processor))
            medians = {s: Taken(*map(median, zip(*all, strict=True))) for s, all in steps.items()}
            found[name][shown] = medians
            for step, (clock, processor) in medians.items():
                say(f"{name}, {shown}: {step} {clock:.3f} s, {processor:.3f} s of processors")
    return found


def sessions(target: str, only: str) -> Iterator[tuple[str, str, str]]:
    """What is measured, its target, and what the process does."""
    shown = [each for each in targets() if target in each]
    for name in filter(lambda name: only in name, CASES):
        for each in shown:
            yield name, each, session_of(name, targets()[each])
        if name == "three_lines" and ON_GPU and "sm_90" in shown:
            for rival, define in RIVALS.items():
                if rival != "cupy.RawKernel" or find_spec("cupy"):
                    yield rival, "sm_90", rivals_session(define)


def targets() -> dict[str, str]:
    return {"cpu": "cpu"} | ({"sm_90": "cuda"} if machine.cuda_home() else {})


def session_of(name: str, target: str) -> str:
    runs, case = ON_GPU or target == "cpu", CASES[name]
    result = textwrap.dedent(RUN if runs else BUILD)
    edited = "kEditedToo" if case.file else "kEdited"  # the cache has the other case's edits
    return textwrap.dedent(SESSION).format(
        name=case.file or name,
        device=target if runs else "cpu",
        result=result.format(call=case.call, target=target, launched=case.launched),
        edits=RUNS,
        edited=edited,
        steps=("there already" if case.file else STEPS[0], *STEPS[1:]),
    )


def rivals_session(define: str) -> str:
    begin = textwrap.dedent(RIVALS_SESSION)
    return begin.format(define=textwrap.dedent(define), text=THREE_LINES, edits=RUNS)


def edits_table(found: dict[str, dict[str, Medians]]) -> str:
    """A row for each kernel and target: what each step took, and what is wanted of the edit."""
    rows = []
    for name, of_targets in found.items():
        for shown, steps in of_targets.items():
            cells = [duration(steps[step].clock) if step in steps else "" for step in STEPS]
            wanted = wanted_of(name, shown)
            edit = steps[EDIT]
            cells[STEPS.index(EDIT)] += f" ({duration(edit.processor)})" * bool(edit.processor)
            reached = "" if wanted is None else f"{wanted} s: {verdict(edit.clock, wanted)}"
            rows.append([name, shown, *cells, reached])
    return table(["median", "", *STEPS, "wanted of an edit"], rows, "llr")


def wanted_of(name: str, shown: str) -> float | None:
    if name not in CASES:
        return None
    cpu, sm_90, on_gpu = CASES[name].wanted
    return cpu if shown == "cpu" else on_gpu if ON_GPU else sm_90


def verdict(seconds: float, wanted: float) -> str:
    return "reached" if seconds <= wanted else "**not reached**"


if __name__ == "__main__":
    main(*sys.argv[1:])
