"""Write docs/bindings.md: the bindings of chapter 12 under several releases of PyTorch.

    .venv/bin/python -m docs.programs.bindings PYTHON [PYTHON ...]

Each PYTHON has one release of torch (and numpy and ninja): there every binding is compiled once,
for the CPU, and every build is then opened and called under each of them.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from docs.programs.page import ROOT, Part, cores, duration, table
from toolchain.resources import plain_names

PART = Part("bindings.md", "docs.programs.bindings")
LADDERS = ROOT / "notebooks" / "ladders"
EXTENSION = "pybind11, by torch/extension.h"
TARGETED = "stable ABI, for the older release"
SOURCES = {
    "pybind11": LADDERS / "12_pybind11.cpp",
    EXTENSION: LADDERS / "12_pybind11.cpp",
    "C functions": LADDERS / "12_c.cpp",
    "TORCH_LIBRARY": LADDERS / "12_torch_library.cpp",
    "stable ABI": ROOT / "kernels" / "square.cpp",
    TARGETED: ROOT / "kernels" / "square.cpp",
}


def main(pythons: list[str]) -> None:
    releases = {said_by(python, "--release"): python for python in pythons}
    oldest = min(releases, key=_numbers)
    with tempfile.TemporaryDirectory() as folder:
        built: dict[str, dict] = {}
        for release, python in releases.items():
            print(f"building under torch {release}", flush=True)
            place = Path(folder, release)
            built[release] = json.loads(said_by(python, "--build", str(place), oldest))
        opens = []
        for name in SOURCES:
            for of, builds in built.items() if name != EXTENSION else ():
                library = builds[name]["library"]
                verdicts = [said_by(python, "--open", name, library) for python in pythons]
                opens.append([name, of, *verdicts])
    seconds = [
        [name, *(duration(built[of][name]["seconds"]) for of in releases)] for name in SOURCES
    ]
    parts = [
        f"{cores()}, load average {os.getloadavg()[0]:.1f} at the end;"
        f" {time.strftime('%d %B %Y')}.",
        "## Seconds",
        table(["to compile, under torch", *releases], seconds, "lr"),
        "## Under another release",
        table(["binding", "built under", *(f"run under {of}" for of in releases)], opens, "l"),
    ]
    PART.write("\n\n".join(parts))


def said_by(python: str, *arguments: str) -> str:
    """The last line that this program prints under another Python; where it dies, that."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [python, "-m", "docs.programs.bindings", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode and arguments[0] != "--open":
        raise RuntimeError(done.stderr)
    return done.stdout.splitlines()[-1] if done.returncode == 0 else "ends the process"


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("+")[0].split(".")[:2])


# ---- under one of the Pythons


def build(folder: Path, oldest: str) -> dict[str, dict]:
    """Compile every binding into an empty cache: its library, and the seconds of processors."""
    import jitload
    from kernels.square import square  # noqa: F401 - the simulator's runtime is there then

    folder.mkdir()
    os.environ["JITLOAD_CACHE"] = str(folder)
    major, minor = _numbers(oldest)
    found = {}
    for number, (name, source) in enumerate(SOURCES.items()):
        if name == EXTENSION:
            text = source.read_text().replace("torch/csrc/utils/pybind.h", "torch/extension.h")
            source = folder / "extension.cpp"
            source.write_text(text)
        version = f"-DTORCH_TARGET_VERSION=0x{major:02x}{minor:02x}{0:012x}"
        before = compiling()
        kernel = jitload.load(
            ROOT / "kernels" / "square.cu",
            source,
            name=f"way_{number}",
            target="cpu",
            flags=[version] if name == TARGETED else [],
            include=[LADDERS],
        )
        found[name] = {"library": str(kernel.library), "seconds": compiling() - before}
    return found


def compiling() -> float:
    """Seconds that processors have worked for the compilers that this process called."""
    used = os.times()
    return used.children_user + used.children_system


def opened(name: str, library: str) -> str:
    """What became of opening a build and squaring 3 with it."""
    import torch

    from kernels.square import square  # noqa: F401

    x, stem = torch.tensor([3.0]), Path(library).stem
    try:
        if name == "C functions":
            y = torch.empty(1)
            pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y)]
            ctypes.CDLL(library).forward(*pointers, ctypes.c_int64(1), None)
        elif name.startswith("pybind11"):
            loader = importlib.machinery.ExtensionFileLoader(stem, library)
            module = importlib.util.module_from_spec(importlib.util.spec_from_loader(stem, loader))
            loader.exec_module(module)
            y = module.square(x)
        else:
            torch.ops.load_library(library)
            more = [1] if name.startswith("stable") else []
            y = getattr(torch.ops, stem).forward(x, *more)
    except (OSError, ImportError) as error:
        said = str(error.__cause__ or error)
        symbol = said.rpartition("undefined symbol: ")[2]
        return f"**misses** `{plain_names([symbol])[symbol]}`"
    return "runs" if y.item() == 9 else f"**answers {y.item()}**"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--release"]:
            import torch

            print(torch.__version__)
        case ["--build", folder, oldest]:
            print(json.dumps(build(Path(folder), oldest)))
        case ["--open", name, library]:
            print(opened(name, library))
        case pythons:
            main(pythons or [sys.executable])
