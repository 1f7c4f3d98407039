"""How long the loop of edit, run, look takes: ours, and plain torch.utils.cpp_extension.load.

Both compile layer_norm as kernels/ has it: forward and backward, every version, four types. Each
session plays in a folder and a cache of its own, in processes of its own: what a step costs is the
time of its load and call, after `import torch`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from docs.programs.page import ROOT
from toolchain import machine

ON_GPU = torch.cuda.is_available()
ARCHITECTURE = "9.0"

# What the processes of a session do, one after another; `timed` times result().
COLD = """
    timed("cold build")
"""
NOTEBOOK = """
    timed("warm import", begun)
    earlier = edit(SOURCE)
    timed("source edit")
    SOURCE.write_text(earlier)
    timed("return to an earlier source")
    for _ in range(9):
        timed("unchanged cell")
"""
HEADER = """
    edit(Path("include/rows.cuh"))
    timed("header edit")
"""
BUILDS = ("cold build", "source edit", "header edit")  # the steps that must compile, and no others
STEPS = {
    "cold build": "cold build",
    "source edit": "edit to result, a source",
    "header edit": "edit to result, a header",
    "return to an earlier source": "return to an earlier source",
    "unchanged cell": "re-run of an unchanged cell",
    "warm import": "warm import, beyond `import torch`",
}

BEGIN = """
    import json, sys, time
    from pathlib import Path

    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()  # its start is nobody's
    begun = time.perf_counter()

    def timed(step, started=None):
        started = started or time.perf_counter()
        before = libraries()
        result()
        taken = time.perf_counter() - started
        print(json.dumps([step, taken, libraries() != before]), flush=True)

    def libraries():
        return {(path, path.stat().st_mtime) for path in Path().rglob("*layer_norm*.so")}

    def edit(path):
        before = path.read_text()
        path.write_text(before + "constexpr int kEdited = 1;\\n")
        return before
"""
INPUTS = """
    def inputs(device):
        x = torch.ones(64, 1024, device=device)
        return x, x[0], x[1], 1e-5, 2
"""
OURS = """
    import jitload

    SOURCE = Path("layer_norm.cu")

    def result():
        sources, options = [SOURCE, "layer_norm.cpp"], dict(target={target!r}, include=["include"])
        if {runs}:
            jitload.load(*sources, **options).forward(*inputs({target!r}))
            torch.accelerator.is_available() and torch.accelerator.synchronize()
        else:  # without a GPU
            jitload.ensure(*sources, **options)
"""
PLAIN = """
    from torch.utils import cpp_extension

    SOURCE = Path("plain_layer_norm.cu")
    more = []
    if not {runs}:  # a torch for CPUs finds no nvcc, asks it for no headers, has no CUDA libraries
        cpp_extension.CUDA_HOME, torch.version.cuda = {cuda_home!r}, {release!r}
        cpp_extension._import_module_from_library = lambda *_: None
        Path("links").mkdir(exist_ok=True)
        for library in ("libc10_cuda.so", "libtorch_cuda.so"):
            Path("links", library).write_text("/* empty */")
        more = [f"-L{{Path('links').absolute()}}"]

    def result():
        module = cpp_extension.load(
            "plain_layer_norm",
            [str(SOURCE)],
            extra_include_paths=[str(Path("include").absolute())],
            extra_cuda_cflags=["-DPLAYGROUND_CUDA=1", "-DHAVE_GPU={runs:d}"],
            extra_ldflags=list(more),  # load appends to it
        )
        if {runs}:
            module.forward(*inputs("cuda"))
            torch.cuda.synchronize()
"""


@dataclass(frozen=True)
class Side:
    """A column of the table.

    name: its head.
    code: defines SOURCE and result(), which loads and calls.
    runs: whether this machine can call what is built; else the build alone is timed.
    sessions: how many.
    """

    name: str
    code: str
    runs: bool
    sessions: int

    def code_for(self, steps: str) -> str:
        target = "cpu" if "cpu" in self.name else "cuda"
        options = {"runs": self.runs, "target": target}
        if target == "cuda":
            options |= {"cuda_home": str(machine.cuda_home()), "release": nvcc_release()}
        parts = [BEGIN, INPUTS, self.code.format(**options), steps]
        return "\n".join(map(textwrap.dedent, parts))


def sides() -> list[Side]:
    """Those that this machine can build."""
    found = [Side("ours, cpu", OURS, True, 3)]
    if machine.cuda_home():
        found.append(Side("ours, sm_90", OURS, ON_GPU, 3))
        found.append(Side("plain, sm_90", PLAIN, ON_GPU, 1))
    return found


class Taken(NamedTuple):
    """What a step took, and whether it compiled anything."""

    seconds: float
    built: bool


Seconds = dict[str, list[Taken]]  # by step


def nvcc_release() -> str:
    """As in "13.0"."""
    said = subprocess.run(
        [f"{machine.cuda_home()}/bin/nvcc", "--version"], capture_output=True, text=True, check=True
    )
    return ".".join(map(str, machine.nvcc_release(said.stdout)))


def measure(side: Side, say: Callable[[str], None]) -> Seconds:
    """Play a side's sessions; `say` is told each time as it comes."""
    seconds: Seconds = defaultdict(list)
    for _ in range(side.sessions):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            prepare(folder)
            for steps in (COLD, NOTEBOOK, HEADER):
                for step, taken, built in play(side.code_for(steps), folder):
                    seconds[step].append(Taken(taken, built))
                    say(f"{side.name}: {STEPS[step]} {taken:.3f} s")
    return seconds


def prepare(folder: Path) -> None:
    """The sources of both sides; and the simulator's runtime, which is built once a machine."""
    for name in ("layer_norm.cu", "layer_norm_wide.cuh", "layer_norm.cpp"):
        shutil.copy(ROOT / "kernels/norms" / name, folder)
    shutil.copytree(ROOT / "kernels/include", folder / "include")
    source = (folder / "layer_norm.cu").read_text()
    binding = (ROOT / "docs/programs/loop_plain.cpp").read_text()
    (folder / "plain_layer_norm.cu").write_text(f"{source}\n{binding}")
    build_runtime(folder)


def build_runtime(folder: Path) -> None:
    """The simulator's, in the folder's cache."""
    runtime = textwrap.dedent("""
        import jitload
        jitload.announce(False)
        jitload.ensure("square", target="cpu")
    """)
    list(play(runtime, folder))


def play(code: str, folder: Path) -> Iterator[tuple[str, float, bool]]:
    """What a process prints of its steps, as it comes: step, seconds, whether it built."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TORCH_CUDA_ARCH_LIST": ARCHITECTURE,
        "JITLOAD_CACHE": str(folder / "cache"),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
    }
    with (folder / "errors").open("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        for line in process.stdout:
            if line.startswith("["):
                yield tuple(json.loads(line))
        if process.wait():
            errors.seek(0)
            raise RuntimeError(errors.read())
