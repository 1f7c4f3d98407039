"""python -m jitload: build, run, debug, resources, sass, ptx, ship, doctor, prune."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
from pathlib import Path

import torch

from jitloader import arguments, debugger, derivatives, programs, runtime
from jitloader.arguments import recipe_of
from jitloader.building import ensure
from jitloader.cache import Cache
from jitloader.checkup import cache_rows
from jitloader.events import unannounced
from jitloader.opening import open_build
from toolchain import machine
from toolchain.code import Recipe
from toolchain.errors import CompileError, MissingTool
from toolchain.machine import default_target
from toolchain.sources import ROOT


def recipes(names: list[str], target: str) -> list[Recipe]:
    """The recipes of these ops, or of all, and of the libraries that they need."""
    names = names or list(arguments.op_files(".cu"))
    first = [runtime.recipe()] if target == "cpu" else []
    return [*first, *(recipe_of([name], target=target) for name in names), derivatives.recipe()]


@unannounced()
def build(
    names: list[str], target: str | None = None, ahead: bool = False, environment: bool = False
) -> int:
    """Build ops ahead of their first import, with a line for each; return the exit status."""
    if environment:
        runtime.build_for_environment()
        return 0
    target = machine.checked_target(target, "--target") if target else default_target()
    if ahead:
        from jitloader.ahead import build_ahead

        return build_ahead(names, target)
    wanted = recipes(names, target)
    failed = 0
    for number, recipe in enumerate(wanted, 1):
        started = time.perf_counter()
        print(f"[{number}/{len(wanted)}] {recipe.name:20} {recipe.target:5}", end="", flush=True)
        try:
            made = ensure(recipe)
        except (CompileError, MissingTool) as error:
            failed += 1
            print(f"failed\n{error}", flush=True)
        else:
            taken = time.perf_counter() - started
            cached = "" if made.seconds <= taken else "  (cached)"
            print(f"{taken:6.1f} s{cached}", flush=True)
    return 1 if failed else 0


_USAGE = "FILE.cu [MORE.cu .cpp] [--target cpu|cuda] [--timeout SECONDS] [-I.. -D..] [-- ARGUMENTS]"


@unannounced()
def run(words: list[str]) -> int:
    """Build a file that has a main(), and run it: on the GPU, or without one on the simulator.

    Returns its exit status; 125 if it was not built, 124 after --timeout.
    """
    try:
        line = programs.ProgramLine.parse(words)
        if not line.sources:
            raise ValueError(f"wanted is python -m jitload run {_USAGE}")
        program = programs.Program(*line.sources, target=line.target, flags=line.flags)
    except (CompileError, MissingTool, OSError, TypeError, ValueError) as error:
        print(error, file=sys.stderr)
        return programs.NOT_BUILT
    except KeyboardInterrupt as stop:
        print(stop, file=sys.stderr)
        return 128 + signal.SIGINT
    try:
        ran = program.run(line.arguments, timeout=line.timeout)
    except KeyboardInterrupt as stop:
        print(stop, file=sys.stderr)
        return 128 + signal.SIGINT
    notes = (f"{program.name}: {note}" for note in program.build.notes)
    print(*notes, f"{program.name} {ran}", sep="\n", file=sys.stderr)
    return ran.exit_status


@unannounced()
def debug(words: list[str]) -> int:
    """Build a file that has a main(), and open gdb on it; simulator/gdb_commands.py says more.

    With --within first, this process becomes the program: for an editor whose gdb runs it already.
    """
    within = words[:1] == ["--within"]
    try:
        debugger.gdb()
        line = programs.ProgramLine.parse(words[within:])
        if not line.sources:
            raise ValueError("wanted is python -m jitload debug FILE.cu [MORE] [-- ARGUMENTS]")
        program = programs.Program(  # with the settings of debugger.recipe_for
            *line.sources, target="cpu", flags=line.flags, check=True, debug=True
        )
        command = program.command(line.arguments)
    except (CompileError, MissingTool, OSError, TypeError, ValueError) as error:
        print(error, file=sys.stderr)
        return programs.NOT_BUILT
    if within:
        os.execve(command[0], command, program.environment())
    return debugger.run_gdb(command, program.environment())[0]


def resources(name: str) -> int:
    """Compile an op for a GPU, which need not be here, and show what resources its kernels use."""
    from toolchain.resources import Resources, uses

    made = ensure(recipe_of([name], target="cuda"))
    print(Resources(uses(made.log()), threads=256))
    return 0


def listing(language: str, name: str, function: str = "") -> int:
    """Compile an op for a GPU, which need not be here, and show its SASS or PTX beside its source.

    Without a function, or if there are very many instructions, show a table of the functions.
    """
    try:
        made = ensure(recipe_of([name], target="cuda"))
        listed = made.sass(function) if language == "sass" else made.ptx(function)
    except (CompileError, MissingTool, OSError, RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(listed if function else listed.overview())
    return 0


def ship(words: list[str]) -> int:
    """Make an installable package of ops, or of any kernel: sources, wheel and proof.

    The lab does this in a process of its own, because it measures what it ships.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "lab.ship", *words]
    try:
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}).returncode
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def doctor() -> int:
    """Say what this machine can build and run, and the remedy for each missing piece.

    Each "yes" was tested: a small kernel is compiled, opened and run.
    """
    home, gpu = machine.cuda_home(), torch.cuda.is_available()
    ninja = shutil.which("ninja") or shutil.which("ninja", path=sysconfig.get_path("scripts"))
    try:
        compiler, remedy = shlex.join(machine.found_cxx()), ""
    except MissingTool as missing:
        compiler, remedy = "", str(missing)

    doctors_row("python", platform.python_version())
    doctors_row("torch", torch.__version__)
    doctors_row("C++ compiler", compiler, remedy)
    headers = Path(sysconfig.get_path("include"), "Python.h")
    doctors_row(
        "Python.h",
        headers if headers.is_file() else None,
        "wanted by pybind11 bindings alone; Debian: apt install python3-dev",
    )
    doctors_row("ninja", ninja, "pip install ninja")
    for row in cache_rows():
        doctors_row(*row)
    doctors_row("nvcc", home, "pip install nvidia-cuda-nvcc (see README.md), or set CUDA_HOME")
    headers = home and home / "include/cuda_runtime.h"
    doctors_row(
        "CUDA headers",
        headers if headers and headers.is_file() else None,
        "nvcc wants them: pip install nvidia-cuda-runtime, or a whole toolkit",
    )
    cccl, wanted = machine.cccl(), "wanted by what includes them: pip install nvidia-cuda-cccl"
    doctors_row("Thrust, CUB", cccl and cccl[0], wanted)
    doctors_row("GPU's driver", _driver(), "nvidia-smi is not found; without a GPU none is needed")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if gpu else []
    why = "this torch is a CPU build" if torch.version.cuda is None else "check nvidia-smi"
    none = f"none that torch sees ({why}); kernels run on the simulator"
    doctors_row("GPU", ", ".join(names), none)
    print()
    default = default_target()
    works = {}
    for target in ("cpu", "cuda"):
        print(f"target {target:5}", end=" ", flush=True)
        builds, runs, error = tried(target)
        works[target] = runs
        more = f"  architectures: {' '.join(machine.architectures())}" if target == "cuda" else ""
        print(f"builds: {_yes(builds)}  runs: {_yes(runs)}{more if builds else ''}")
        if error:
            print(textwrap.indent(str(error), " " * 13))
    print(f"default      {default}")
    return 0 if works[default] else 1


def doctors_row(what: str, value: object, remedy: str = "") -> None:
    """Print a line of the doctor: what there is, or how to get it."""
    print(f"{'ok     ' if value else 'missing'}  {what:14} {value or remedy}")


def _driver() -> str | None:
    """The version of NVIDIA's driver."""
    if (program := shutil.which("nvidia-smi")) is None:
        return None
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        asked = subprocess.run(command, capture_output=True, text=True, timeout=20)
        return None if asked.returncode else ", ".join(dict.fromkeys(asked.stdout.split()))
    return None


_TRIAL = """\
#include <cuda_runtime.h>
__global__ void add_one(float* x) { x[threadIdx.x] += 1; }
extern "C" cudaError_t run(float* x, cudaStream_t stream) {
    add_one<<<1, 32, 0, stream>>>(x);
    return cudaGetLastError();
}
"""


@unannounced()
def tried(target: str) -> tuple[bool, bool, object]:
    """Whether a small kernel builds for a target, whether it runs, and what went wrong."""
    builds = False
    try:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "add_one.cu")
            source.write_text(_TRIAL)
            elsewhere = Cache(Path(folder))  # an empty cache, so that it is compiled now
            recipe = recipe_of([source], target=target)
            try:
                made = ensure(recipe, elsewhere)
            except CompileError as error:  # its log will be deleted
                log, error.log = error.log, None
                text = log.read_text()[-2000:] if log and not error.path else ""
                return False, False, f"{error}\n{text}".rstrip()
            builds = True
            if target == "cuda" and not torch.cuda.is_available():
                return builds, False, None
            x = torch.zeros(32, device=target)
            open_build(made, recipe).functions["run"](x)
            if not bool((x == 1).all()):
                raise RuntimeError(f"a kernel that adds 1 to 0 gave {x.tolist()}")
            return builds, True, None
    except Exception as error:
        return builds, False, error


def _yes(value: object) -> str:
    return "yes" if value else "no"


def prune(gigabytes: float = 2.0, days: float = 30.0) -> int:
    """Remove builds unused for `days`, then the longest unused until `gigabytes` are left.

    What a living process has open or builds stays.
    """
    cache = Cache.here()
    kept, freed = cache.prune(gigabytes, days)
    print(f"{cache.own}: kept {kept / 1e6:.1f} MB, freed {freed / 1e6:.1f} MB")
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m jitload", description="Build CUDA kernels ahead, and look after the cache."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    builder = commands.add_parser("build", help=build.__doc__)
    builder.add_argument("names", nargs="*", metavar="NAME", help="ops in kernels/; default: all")
    builder.add_argument("--target", choices=machine.TARGETS)
    aside = "in silence, while nobody else wants the processor, until standard input ends"
    builder.add_argument("--ahead", action="store_true", help=aside)
    once = "what all kernels share alone, into this Python environment, where every cache finds it"
    builder.add_argument("--environment", action="store_true", help=once)
    runner = commands.add_parser(
        "run", help=run.__doc__.splitlines()[0], usage=f"python -m jitload run {_USAGE}"
    )
    runner.add_argument("words", nargs="*")
    debugger = commands.add_parser(
        "debug",
        help=debug.__doc__.splitlines()[0],
        usage="python -m jitload debug FILE.cu [MORE.cu .cpp] [-I.. -D..] [-- ARGUMENTS]",
    )
    debugger.add_argument("words", nargs="*")
    shower = commands.add_parser("resources", help=resources.__doc__)
    shower.add_argument("name", metavar="NAME", help="an op in kernels/")
    for language in ("sass", "ptx"):
        lister = commands.add_parser(language, help=listing.__doc__.splitlines()[0])
        lister.add_argument("name", metavar="NAME", help="an op in kernels/, or the path of a .cu")
        lister.add_argument("function", nargs="?", default="", help="a part of a kernel's name")
        lister.set_defaults(language=language)
    commands.add_parser("ship", help=ship.__doc__.splitlines()[0])
    commands.add_parser("doctor", help=doctor.__doc__)
    pruner = commands.add_parser("prune", help=prune.__doc__.splitlines()[0])
    pruner.add_argument("--gigabytes", type=float, default=2.0)
    pruner.add_argument("--days", type=float, default=30.0)
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["run"] and words[1:2] not in (["-h"], ["--help"]):
        return run(words[1:])
    if words[:1] == ["debug"] and words[1:2] not in (["-h"], ["--help"]):
        return debug(words[1:])
    if words[:1] == ["ship"]:  # the lab parses its options
        return ship(words[1:])
    options = vars(parser.parse_args(words))
    commanded = {"build": build, "resources": resources, "doctor": doctor, "prune": prune}
    commanded |= {"sass": listing, "ptx": listing}
    return commanded[options.pop("command")](**options)
