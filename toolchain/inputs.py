"""What decides a build: sources, headers, flags, compilers, and the digest of them all."""

from __future__ import annotations

import ast
import contextlib
import os
import platform
import stat
import sys
import time
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch

import simulator
from toolchain import machine, sources
from toolchain.cache import Cache
from toolchain.errors import CompileError, MissingTool
from toolchain.notes import digest_of, read_note, write_note
from toolchain.sources import label

SIMULATOR = Path(simulator.__file__).resolve().parent
COARSEST_CLOCK = 2_000_000_000  # ns: of all file systems', FAT's
READ_BY_COMPILERS = (
    *("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"),
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "PYTORCH_NVCC"),
    *("SDKROOT", "MACOSX_DEPLOYMENT_TARGET"),
)
LAYOUT = 3  # of the cache: raised when what a build's folder holds changes its meaning


class Stat(NamedTuple):
    """What tells, without reading it, that a file is still the same one."""

    device: int
    inode: int
    size: int
    changed: int  # st_mtime_ns and st_ctime_ns: an edit may put the first back, not the second
    touched: int
    is_settled: bool  # changed long enough ago for the next change to show


def _stat(place: str) -> Stat | None:
    """Of a file; None where there is none."""
    try:
        found = os.stat(place)  # noqa: PTH116 - a Path would double the time
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    settled = time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > COARSEST_CLOCK
    times = found.st_mtime_ns, found.st_ctime_ns
    return Stat(found.st_dev, found.st_ino, found.st_size, *times, settled)


@dataclass(frozen=True)
class Recipe:
    """All that the caller of `load` decides. What lies in the files is read from them afresh."""

    name: str
    sources: tuple[Path, ...]
    include: tuple[Path, ...]
    flags: tuple[str, ...]
    target: str
    debug: bool
    formulas: str = ""  # digest of the Python file that registers fake and autograd formulas
    check: bool = False  # instrumented for lab.check; target is "cpu"

    @property
    def identifier(self) -> str:
        """The name as C++ and Python can use it: that of 00_copy.cu begins with a digit."""
        return self.name if self.name[0].isalpha() else f"k{self.name}"

    @cached_property
    def key(self) -> str:
        """Tells recipes apart whatever their files hold: the versions of a kernel share it."""
        labels = [label(p) for p in (*self.sources, *self.include)]
        kind = f"{self.debug}{' check' if self.check else ''}"
        return digest_of(self.name, self.target, kind, *labels, "|", *self.flags)[:16]


@dataclass(frozen=True)
class Inputs:
    """A recipe and the content of every file of the user's that the compiler will read for it."""

    recipe: Recipe
    files: dict[Path, bytes]
    cache: Cache  # where it is noted what compilers and depfiles said
    stats: dict[str, Stat | None]  # of every place looked at; None where there is no file
    environment: dict[str, str]  # what compilers read there

    @classmethod
    def read(cls, recipe: Recipe, cache: Cache) -> Inputs:
        """Follow #include as the compiler looks headers up.

        What a macro includes is known only after a first build, from its depfile: see `note`.
        """
        files: dict[Path, bytes] = {}
        stats: dict[str, Stat | None] = {}

        def is_file(place: str) -> bool:
            if place not in stats:
                stats[place] = _stat(place)
            return stats[place] is not None

        environment = _environment()
        folders = [*recipe.include, *sources.folders_in(recipe.flags, "-isystem")]
        folders += _folders_named_in(environment)
        queue = [*map(str, recipe.sources), *_noted(recipe, cache)]
        while queue:
            path = Path(place := queue.pop())
            if path in files or not is_file(place):
                continue
            files[path] = path.read_bytes()
            for quote, name in sources.asked_for(files[path].decode(errors="replace")):
                beside = [path.parent] if quote == '"' else []
                places = (sources.file_in(p, name) for p in (*beside, *folders))
                if found := next(filter(is_file, places), None):
                    queue.append(found)
        for path in recipe.sources:
            if path not in files:
                raise FileNotFoundError(f"{path}: this source of kernel {recipe.name!r} is gone")
        return cls(recipe, files, cache, stats, environment)

    def are_current(self) -> bool:
        """Whether all files, and the places where there were none, are still as they were read.

        The environment, too, as far as compilers look at it.

        A file's content is compared where its stat is no longer the same, and where it was changed
        so shortly before it was read (or, after the clock went back, in the future) that another
        change could have left the same stat.
        """
        if self.environment != _environment():
            return False
        for place, before in self.stats.items():
            now = _stat(place)
            if now == before and (now is None or now.is_settled):
                continue
            if now is None or Path(place) not in self.files:
                return False
            try:
                if Path(place).read_bytes() != self.files[Path(place)]:
                    return False
            except OSError:
                return False
            self.stats[place] = now
        return True

    def in_order(self) -> list[Path]:
        """The sources, then the headers."""
        return [*self.recipe.sources, *sorted(self.files.keys() - set(self.recipe.sources))]

    def note(self, headers: set[Path]) -> None:
        """Count these headers as inputs of the recipe from now on."""
        known = {*headers, *map(Path, _noted(self.recipe, self.cache))}
        labels = sorted(map(label, known))  # other checkouts of the project have the same recipe
        write_note(_note(self.recipe, self.cache.own), {"headers": labels})

    def text(self, path: Path) -> str:
        return self.files[path].decode(errors="replace")

    @cached_property
    def source_text(self) -> str:
        return "\n".join(map(self.text, self.recipe.sources))

    @cached_property
    def binding(self) -> str:
        return sources.binding_of(self.source_text)

    @cached_property
    def codes(self) -> dict[Path, tuple[str, ...]]:
        """The sources' own code, as the preprocessor leaves it."""
        from toolchain.preprocess import preprocessed  # late: a warm load does without

        return {path: preprocessed(self, path) for path in self.recipe.sources}

    @cached_property
    def exports(self) -> dict[str, Any]:
        """What Python can call: `sources.exports`, and kernels, told by the key "kernel"."""
        from toolchain import launchers

        found: dict[str, Any] = {}
        for code in chain.from_iterable(self.codes.values()):
            found = sources.exports(code, self.binding) | found
        if self.binding == "c":
            found |= launchers.offered(self.codes.values(), found)
        return found

    def launchers(self, path: Path) -> str:
        """What is to be compiled behind a source: "" where all its kernels have launchers."""
        from toolchain import launchers

        if self.binding != "c" or path not in self.codes:
            return ""
        return launchers.launchers(self.codes[path][0], path, self.exports)

    @cached_property
    def compilers(self) -> str:
        """What they call themselves; where they are gone, what they did when last seen.

        So builds in the cache outlive their compilers.
        """
        target = self.recipe.target
        note = Path("compilers", f"{target}_{digest_of(machine.cxx())[:16]}")
        try:
            said = machine.compiler_versions(target, self.cache.own / "compilers")
        except MissingTool:
            for folder in self.cache.folders:
                if known := read_note(folder / note):
                    return known["said"]
            raise
        if read_note(self.cache.own / note) != {"said": said}:
            with contextlib.suppress(OSError):  # a full disk, and the build may be there already
                write_note(self.cache.own / note, {"said": said})
        return said

    def require_compilers(self) -> None:
        """Raises: MissingTool, where they are gone and only remembered."""
        machine.compiler_versions(self.recipe.target, self.cache.own / "compilers")

    @cached_property
    def flags(self) -> tuple[list[str], list[str]]:
        """For the C++ compiler, and for nvcc."""
        recipe = self.recipe
        clang = machine.is_clang(self.compilers)
        # No symbol may be shared between versions: a template's static would stay the old one.
        no_unique = "-fno-gnu-unique"  # of g++, which alone makes such symbols
        shared = []
        if not any(sources.includes_torch(self.text(path)) for path in self.files):
            shared.append("-std=c++17")  # faster by a quarter than torch's default, C++20
        if self.binding != "c":  # extern "C" functions have to stay visible
            shared.append("-fvisibility=hidden")
        ours = [f"-DPLAYGROUND_CUDA={int(recipe.target == 'cuda')}", *recipe.flags]
        _, cxx = machine.cxx_command()
        cxx = [*cxx, "-ftabstop=1", *shared, *ours]  # in columns, a tab is one character
        if not clang:
            cxx.append(no_unique)
        if recipe.target == "cpu":
            debug = ["-O0", "-g"] if recipe.debug else []
            if not clang:  # else an empty loop without an end has no line
                cxx.append("-gstatement-frontiers")
            check = simulator.CHECK_FLAGS if recipe.check else []
            if recipe.check and clang:
                raise MissingTool("lab.check instruments kernels with g++, not clang: set CXX=g++")
            language = ["-x", "c++"]  # of a .cu too, which g++ does not know
            return [*language, *simulator.compile_flags(clang), *cxx, *debug, *check], []
        cxx = ["-O1", *cxx]  # a binding gains nothing from more, but it would take longer
        if not machine.nvccs_host_is_clang():
            shared.append(no_unique)
        host = [flag if flag.startswith("-std") else f"-Xcompiler={flag}" for flag in shared]
        nvcc = ["--extended-lambda", *host, *ours]
        nvcc += [flag for arch in machine.architectures() for flag in machine.gencode(arch)]
        if machine.nvcc_release(self.compilers) >= (12, 1):
            nvcc.append("--split-compile=0")  # the same code, made by all cores
        if recipe.debug:
            return [*cxx, "-O0", "-g"], [*nvcc, "-G", "-g", "-O0"]
        return cxx, [*nvcc, "-lineinfo", "-Xptxas=-v"]  # the latter for toolchain.resources

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits that differ whenever the library's bytes might."""
        recipe, (cxx, nvcc) = self.recipe, self.flags
        native = any(flag.endswith("=native") for flag in cxx)
        made_for = machine.cpu() if native else platform.machine()
        python = f"{sys.implementation.cache_tag} {torch.__version__}"
        files = [part for p in sorted(self.files) for part in (label(p), self.files[p])]
        tools = [self.compilers, made_for, python, *cxx, "|", *nvcc]
        tools += [f"{name}={value}" for name, value in self.environment.items()]
        if recipe.target == "cpu":
            tools.append(_simulators_digest())
        return digest_of(str(LAYOUT), recipe.key, recipe.formulas, *tools, *files)[:16]

    @property
    def name(self) -> str:
        """The extension's: TORCH_EXTENSION_NAME, its namespace, its folder in the cache."""
        return f"{self.recipe.identifier}_{self.digest}"

    def refuse_fixed_names(self) -> None:
        """A binding under a literal name works once; its second version would end the process."""
        for path in self.recipe.sources:
            if found := sources.fixed_name(self.text(path)):
                macro, name, line, column = found
                raise CompileError(
                    f"{macro} under the fixed name {name!r}: a second build of it in one process"
                    " would abort that process",
                    path=path,
                    line=line,
                    column=column,
                    hint=f"write {macro}(TORCH_EXTENSION_NAME, m): every build gets a name of its"
                    " own, and the handle reaches its functions under any",
                )


def _environment() -> dict[str, str]:
    """What compilers read from it."""
    return {name: os.environ[name] for name in READ_BY_COMPILERS if name in os.environ}


def _folders_named_in(environment: dict[str, str]) -> list[Path]:
    """Where the environment has compilers look for headers of the user's, after all other places.

    A relative folder would be one of the build's own.
    """
    values = (environment.get(name, "") for name in ("CPATH", "CPLUS_INCLUDE_PATH"))
    folders = [Path(folder) for value in values for folder in value.split(os.pathsep)]
    return [folder for folder in folders if folder.is_absolute() and not is_systems(folder)]


def is_systems(path: Path) -> bool:
    """Whether it is the system's, Python's, torch's, CUDA's or the simulator's, not the user's."""
    torchs, cudas = Path(torch.__file__).parent, machine.cuda_home() or "/usr"
    system = ("/usr", sys.prefix, sys.base_prefix, torchs, cudas, SIMULATOR)
    return any(path.is_relative_to(folder) for folder in system)


@cache
def _simulators_digest() -> str:
    """Of what rewrites the sources and of what their kernels run on: one a process, like these."""
    parts = (p for p in sorted(SIMULATOR.rglob("*.*")) if p.suffix in (".py", ".cpp", ".h"))
    return digest_of(*(part.read_bytes() for part in parts))


def _note(recipe: Recipe, folder: Path) -> Path:
    return folder / "headers" / f"{recipe.name}_{recipe.key}.json"


def _noted(recipe: Recipe, cache: Cache) -> list[str]:
    notes = (read_note(_note(recipe, folder)) for folder in cache.folders)
    return [str(sources.ROOT / header) for note in notes if note for header in note["headers"]]


def formulas_of(path: Path) -> str:
    """Digest of a Python file's code; comments and docstrings do not count."""
    if not path.is_file():
        return ""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = None
    return digest_of(ast.dump(tree))
