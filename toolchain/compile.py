"""From sources to a library, through torch.utils.cpp_extension.load."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import torch

import simulator
from simulator.rewrite import Unsupported, rewrite
from toolchain import machine, sources
from toolchain.errors import CompileError, first_error
from toolchain.inputs import SIMULATOR, Inputs, Recipe, is_systems
from toolchain.notes import publish
from toolchain.sources import label

# Compilers without a shared libstdc++ put a copy into every library. Were its symbols visible, the
# process's copies would be mixed, and a stream of one would crash in the locale of another.
_KEEP_TO_ITSELF = ["-Wl,--exclude-libs,ALL"] if sys.platform == "linux" else []


class _Failed(Exception):
    """The compilers' output, when they failed."""


def compile_library(
    inputs: Inputs, work: Path, log: Path, progress: Callable[[str], None]
) -> tuple[str, set[Path]]:
    """Compile to `work`/NAME.so; return the compilers' output and the user's files they read.

    Meanwhile `progress` is told the stage, as in "1 of 3: layer_norm.cu", four times a second.

    Raises:
        CompileError: a source does not compile; the compilers' output is in `log`.
    """
    recipe = inputs.recipe
    to_compile, include, mirror = list(recipe.sources), list(recipe.include), None
    if recipe.target == "cpu":
        mirror = _Mirror(work / "mirror")
        to_compile = mirror.write(inputs)
        include = [*map(mirror.place, include), *include, simulator.INCLUDE]
    else:
        to_compile = [_with_launchers(inputs, path, work) for path in to_compile]
    try:
        output = _load_extension(inputs, to_compile, include, work, progress)
    except _Failed as failed:
        publish(log, str(failed))
        raise first_error(str(failed), set(inputs.files), log) from None
    read = {path for depfile in work.glob("*.d") for path in sources.read_depfile(depfile)}
    if mirror:
        read = set(map(mirror.original, read))
    return output, {p for p in read if _is_users(p, recipe) and not p.is_relative_to(work)}


def _with_launchers(inputs: Inputs, path: Path, work: Path) -> Path:
    """The source itself or, where its kernels need launchers, a file that includes it before."""
    if not (launchers := inputs.launchers(path)):
        return path
    copy = work / "launchers" / path.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(f'#include "{path}"\n{launchers}')
    return copy


class _Mirror:
    """The user's files, rewritten for the simulator into a tree of the same shape.

    With folders mirrored, every relative #include finds the rewritten file; #line directives make
    compilers speak of the original.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def place(self, path: Path) -> Path:
        return self.folder / path.relative_to(path.anchor)

    def original(self, path: Path) -> Path:
        if not path.is_relative_to(self.folder):
            return path
        path = Path("/", path.relative_to(self.folder))
        return path.with_suffix("") if path.name.endswith(".cu.cpp") else path

    def write(self, inputs: Inputs) -> list[Path]:
        """Rewrite all inputs; return what to compile."""
        for path in inputs.files:
            if path.is_relative_to(SIMULATOR):  # written for g++ as it is
                continue
            try:
                text = rewrite(inputs.text(path) + inputs.launchers(path), label(path))
            except Unsupported as error:
                raise CompileError(
                    error.message,
                    path=path,
                    line=error.line,
                    column=error.column,
                    hint=error.hint,
                ) from None
            if path.suffix == ".cu":  # nvcc includes this header of itself
                text = f"#include <cuda_runtime.h>\n{text}"
            copy = self.copy(path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)
        return list(map(self.copy, inputs.recipe.sources))

    def copy(self, path: Path) -> Path:
        if path.is_relative_to(SIMULATOR):
            return path
        place = self.place(path)
        return place.with_name(f"{path.name}.cpp") if path.suffix == ".cu" else place


def _load_extension(
    inputs: Inputs,
    to_compile: list[Path],
    include: list[Path],
    work: Path,
    progress: Callable[[str], None],
) -> str:
    """torch.utils.cpp_extension.load with two of its inner steps taken over.

    Its ninja runs in a process group of its own, so that an interrupt ends the compilers too; and
    it does not open the library, which happens once the library is in its place in the cache.
    """
    from torch.utils import cpp_extension
    from torch.utils._cpp_extension_versioner import ExtensionVersioner

    output = ""

    def run_ninja(directory: str, *_: object, **__: object) -> None:
        nonlocal output
        command = ["ninja", "-v", "-d", "keepdepfile"]
        output = _run(command, Path(directory), lambda output: progress(stage(output)))

    def stage(output: str) -> str:
        return stage_of(output, [path.name for path in to_compile])

    home, for_cuda = machine.cuda_home(), inputs.recipe.target == "cuda"
    cxx, nvcc = inputs.flags
    link = _link_flags(work, home) if for_cuda else [*simulator.LINK_FLAGS]
    if inputs.recipe.check:
        link += simulator.CHECK_LINK_FLAGS
    taken_over = {
        "_run_ninja_build": run_ninja,
        "_import_module_from_library": lambda *_: None,
        "JIT_EXTENSION_VERSIONER": ExtensionVersioner(),  # no memory of earlier attempts
        "CUDA_HOME": str(home) if home else None,
    }
    before = {attribute: getattr(cpp_extension, attribute) for attribute in taken_over}
    path = os.environ.get("PATH", "")
    # A notebook's kernel may run without its environment's bin folder, where pip put ninja.
    os.environ["PATH"] = os.pathsep.join([path, sysconfig.get_path("scripts")])
    vars(cpp_extension).update(taken_over)
    try:
        cpp_extension.load(
            name=inputs.name,
            sources=[str(p) for p in to_compile],
            extra_cflags=cxx,
            extra_cuda_cflags=nvcc,
            extra_ldflags=[*_KEEP_TO_ITSELF, *link],
            extra_include_paths=[str(p) for p in include],
            build_directory=str(work),
            with_cuda=for_cuda,
            is_python_module=False,
        )
    finally:
        vars(cpp_extension).update(before)
        os.environ["PATH"] = path
    return output


def _link_flags(work: Path, home: Path | None) -> list[str]:
    """Make torch's -lcudart, -lc10_cuda and -ltorch_cuda resolve wherever this torch came from.

    The CUDA wheels hold libcudart.so.13 but no libcudart.so to link with; a CPU build of torch has
    no CUDA libraries at all, and a kernel built there to be run elsewhere needs none of them at
    link time: for those an empty linker script stands in.
    """
    links = work / "link"
    links.mkdir()
    if home and not list(home.glob("lib64/libcudart.so")):
        for library in sorted(home.glob("lib*/libcudart.so.*"))[:1]:
            (links / "libcudart.so").symlink_to(library)
    for name in ("libc10_cuda.so", "libtorch_cuda.so"):
        if not (Path(torch.__file__).parent / "lib" / name).exists():
            (links / name).write_text("/* empty: resolved when the library is opened */\n")
    return [f"-L{links}"]


def stage_of(output: str, to_compile: list[str]) -> str:
    """How far ninja is, as in "1 of 3: layer_norm.cu": it has a line for each step it ended."""
    ended = re.findall(r"^\[\d+/\d+\] (.*)", output, re.MULTILINE)
    commands = "\n".join(ended) + "\n"
    left = [name for name in to_compile if not re.search(rf"/{re.escape(name)}['\s]", commands)]
    names = ", ".join(name.replace(".cu.cpp", ".cu") for name in left)
    return f"{len(ended) + 1} of {len(to_compile) + 1}: {names or 'linking'}"


def _run(command: list[str], directory: Path, watch: Callable[[str], None]) -> str:
    """Run the compilers; whatever ends us early ends them too.

    `watch` is called four times a second with their output so far.
    """
    process = subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": "C"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    output = b""
    try:
        with process.stdout, selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            due = time.monotonic()
            while True:
                if time.monotonic() >= due:
                    watch(output.decode(errors="replace"))
                    due = time.monotonic() + 0.25
                if ready.select(max(0.0, due - time.monotonic())):
                    if not (chunk := os.read(process.stdout.fileno(), 65536)):
                        break
                    output += chunk
        process.wait()
    except BaseException:
        process.terminate()  # ninja passes it on; each of its compilers leads a group of its own
        process.wait()
        raise
    if process.returncode:
        raise _Failed(output.decode(errors="replace"))
    return output.decode(errors="replace")


def _is_users(path: Path, recipe: Recipe) -> bool:
    """Not the system's, a compiler's, Python's, torch's or CUDA's: the digest covers those."""
    users = [*(p.parent for p in recipe.sources), *recipe.include]
    if any(path.is_relative_to(folder) for folder in users):
        return True
    if is_systems(path):
        return False
    compilers = {machine.cxx(), "g++"}  # the latter is nvcc's; asked where nothing else knows
    own = (folder for name in compilers for folder in machine.compilers_headers(name))
    return not any(path.is_relative_to(folder) for folder in own)
