"""What is compiled: a recipe, and the contents of every file that it needs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import simulator
from simulator.architectures import Architecture
from toolchain import machine, macros, sources
from toolchain.errors import MissingTool
from toolchain.notes import digest_of
from toolchain.sources import LIBRARY, label

if TYPE_CHECKING:  # what a warm load does not need is imported in functions
    from toolchain.nvccs_flags import Translated
    from toolchain.preprocess import Unit
    from toolchain.registrations import Registrations
    from toolchain.tuning import ShapeClass

SIMULATOR = Path(simulator.__file__).resolve().parent
INSTALLED = Path("/usr/local/include")  # the default place of libraries that the user installed
TORCHS_STANDARD = "c++17"  # the oldest standard that its headers support

# torch's build removes the operators and conversions of __half and __nv_bfloat16, which would
# conflict with those of at::Half. Files that do not include torch get what nvcc alone defines.
_HALF_AS_NVCC_HAS_IT = [
    "-U__CUDA_NO_HALF_OPERATORS__",
    "-U__CUDA_NO_HALF_CONVERSIONS__",
    "-U__CUDA_NO_HALF2_OPERATORS__",
    "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
]
_THREAD_LOCAL = re.compile(rb"\b(?:thread_local|__thread)\b")
_OF_TORCH = r"torch|TORCH|c10|\bat::|\bPy[A-Z_]"


class Part(NamedTuple):
    """Functions of a build that are compiled to a library of their own: `toolchain.parts`.

    Attributes:
        build: the name of that build.
        held: the functions' symbols, each with the expression for its address in the library.
        statements: C++ statements that are compiled after the source.
        jumps: the symbols of kernels that the library finds when they are launched.
        kept: where the cache keeps the object of its .cu, once that is compiled whole; "" if that
            object cannot be used.
        of_host: whether it has no kernels: those of its source have empty bodies.
    """

    build: str
    held: tuple[tuple[str, str], ...]
    statements: tuple[str, ...]
    jumps: tuple[str, ...]
    kept: str
    of_host: bool = False

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.held]


@dataclass(frozen=True)
class Recipe:
    """All that the caller of `load` decides, without the contents of the files."""

    name: str
    sources: tuple[Path, ...]
    include: tuple[Path, ...]
    flags: tuple[str, ...]
    target: str
    debug: bool
    formulas: str = ""  # digest of the Python file that registers fake and autograd formulas
    check: bool = False  # instrumented for lab.check; the target is "cpu"
    trace: bool = False  # instrumented for lab.trace, too
    program: bool = False  # it has a main(), and no functions for Python
    instances: tuple[tuple[str, tuple[str, ...]], ...] = ()  # of templates, with their arguments
    part: Part | None = None  # only these launchers, of the one source, a .cu

    @property
    def identifier(self) -> str:
        """The name as an identifier: that of 00_copy.cu begins with a digit."""
        return self.name if self.name[0].isalpha() else f"k{self.name}"

    @cached_property
    def key(self) -> str:
        """Identifies the recipe, whatever is in its files: all builds of a kernel share it."""
        labels = [label(p) for p in (*self.sources, *self.include)]
        kind = f"{self.debug}{' check' * self.check}{' trace' * self.trace}"
        kind += f"{' program' * self.program}"
        if self.instances:
            kind += f" {self.instances}"
        if self.part:
            kind += f" {self.part}"
        return digest_of(self.name, self.target, kind, *labels, "|", *self.flags)[:16]


@dataclass(frozen=True)
class Code:
    """A recipe, and all that a compiler needs for it.

    Attributes:
        files: the content of every user's file that the compiler will read.
        compilers: the version texts of the target's compilers.
    """

    recipe: Recipe
    files: dict[Path, bytes]
    compilers: str

    def text(self, path: Path) -> str:
        return self.files[path].decode(errors="replace")

    def header(self, path: Path, quote: str, name: str) -> Path | None:
        """The user's header that a file includes by this name."""
        beside = [path.parent] if quote == '"' else []
        places = (Path(sources.file_in(p, name)) for p in (*beside, *self.recipe.include))
        return next((place for place in places if place in self.files), None)

    @property
    def several(self) -> bool:
        """Whether several .cu files make the library."""
        return sum(path.suffix == ".cu" for path in self.recipe.sources) > 1

    @cached_property
    def own(self) -> tuple[Path, ...]:
        """The sources, and the files that these and their includes include with quotes."""
        own = list(self.recipe.sources)
        for path in own:  # it grows during the loop
            for quote, name in sources.included(self.text(path)):
                header = self.header(path, quote, name) if quote == '"' else None
                if header and header not in own and not header.is_relative_to(LIBRARY):
                    own.append(header)
        return tuple(own)

    @cached_property
    def of_library(self) -> frozenset[Path]:
        """The headers of third-party libraries, found by name in a folder of headers.

        The sources' own headers are beside the files that include them.
        """
        own = list(self.recipe.sources)
        for path in own:  # it grows during the loop
            for _, name in sources.included(self.text(path)):
                header = Path(sources.file_in(path.parent, name))
                if header in self.files and header not in own:
                    own.append(header)
        return frozenset(self.files).difference(own)

    def _bound(self, path: Path) -> str:
        """The text of a file that may contain a binding. A macro of a header binds only where it
        is used, which the header's text does not show."""
        text = self.text(path)
        return text if path in self.recipe.sources else sources.without_directives(text)

    @cached_property
    def binding(self) -> str:
        if self.recipe.program:
            return "program"
        if self.recipe.part:
            return "part"
        bindings = {sources.binding_of(self._bound(path)) for path in self.own}
        return next(binding for binding in ("module", "ops", "c") if binding in bindings)

    @cached_property
    def units(self) -> dict[Path, tuple[Unit, ...]]:
        """The preprocessed code of each source.

        Empty for the simulator's sources: they have none for Python, and would take seconds.
        """
        from toolchain.preprocess import Unit, preprocessed

        return {
            path: (Unit("", ()),) if path.is_relative_to(SIMULATOR) else preprocessed(self, path)
            for path in self.recipe.sources
        }

    @cached_property
    def exports(self) -> dict[str, Any]:
        """What Python can call: `sources.exports`, and kernels, marked by the key "kernel"."""
        from toolchain import launchers
        from toolchain.reads import only_read
        from toolchain.signatures import obstacle

        exports: dict[str, Any] = {}
        if self.recipe.part:
            return {
                "held": self.recipe.part.names,
                "jumps": self.recipe.part.jumps,
                "of_host": self.recipe.part.of_host,
            }
        if self.recipe.program:
            return exports
        for units in self.units.values():
            for unit in units:
                exported = sources.exports(unit.text, self.binding)
                if self.binding == "c":  # what Python cannot call is in `launchers.explanations`
                    exported = {
                        name: export
                        for name, export in exported.items()
                        if obstacle(export["parameters"], export["returns"]) is None
                    }
                exports = exported | exports
        if self.binding == "c":
            exports |= launchers.offered(self.units.values(), exports, self.recipe.instances)
            texts = [unit.text for units in self.units.values() for unit in units]
            for name, export in exports.items():
                defined = export.get("instance_of", [name])[0]
                if read := only_read(texts, defined, export["parameters"]):
                    export["read"] = read
        return exports

    @cached_property
    def launchers(self) -> dict[Path, str]:
        """What is compiled after each source: "" if all its kernels have launchers."""
        from toolchain import launchers

        if self.recipe.part:
            return {self.recipe.sources[0]: "\n".join(["", *self.recipe.part.statements, ""])}
        if self.binding != "c":
            return dict.fromkeys(self.recipe.sources, "")
        units = {path: units[0] for path, units in self.units.items()}
        return launchers.launchers(units, self.exports)

    @cached_property
    def cccl(self) -> tuple[Path, int] | None:
        """The folder and the version of NVIDIA's Thrust and libcu++, if the CPU target needs them.

        The simulator has its own versions of headers in which threads wait for each other.
        """
        return machine.cccl() if self.wants_cccl else None

    @cached_property
    def wants_cccl(self) -> bool:
        """Whether it needs them, installed or not."""
        if self.recipe.target != "cpu" or self.recipe.sources[0].is_relative_to(SIMULATOR):
            return False
        if any(
            re.match(r"(thrust|cuda|nv)/", name) and not (simulator.INCLUDE / name).is_file()
            for path in self.files
            for _, name in sources.included(self.text(path))
        ):
            return True
        from toolchain import cuda_ptx

        return any(cuda_ptx.is_spoken_of(self.text(path)) for path in self.files)

    @cached_property
    def simulated(self) -> Architecture | None:
        """The result of machine.simulated; None for the simulator's own sources."""
        is_own = self.recipe.sources[0].is_relative_to(SIMULATOR)
        return None if is_own or self.recipe.target != "cpu" else machine.simulated()

    @cached_property
    def flags(self) -> tuple[list[str], list[str]]:
        """The flags for the C++ compiler and those for nvcc."""
        recipe = self.recipe
        clang = machine.is_clang(self.compilers)
        # Builds must not share symbols: a template's static variable would stay the old build's.
        no_unique = "-fno-gnu-unique"  # only g++ makes such symbols
        shared = []
        if not self.includes_torch:
            shared.append("-std=c++17")  # faster by a quarter than torch's default, C++20
        if self.binding not in ("c", "program"):  # extern "C" functions and main stay visible
            shared.append("-fvisibility=hidden")
        macro = f"-DPLAYGROUND_CUDA={int(recipe.target == 'cuda')}"
        ours = [macro, *recipe.flags, *self.tuned]
        _, cxx = machine.cxx_command()
        # A tab counts as one column.
        cxx = [*cxx, "-ftabstop=1", *shared, macro, *self._apart[0]]
        if recipe.part:
            cxx.append("-DSIMULATOR_PART")
        if not clang:
            cxx.append(no_unique)
        if recipe.target == "cpu":
            debug = ["-O0", "-g"] if recipe.debug else []
            if not clang:  # else an endless empty loop has no line
                cxx.append("-gstatement-frontiers")
            check = simulator.check_flags(recipe.trace) if recipe.check else []
            if recipe.check and clang:
                raise MissingTool("lab.check instruments kernels with g++, not clang: set CXX=g++")
            if self.cccl:  # Thrust's device is the CPU, too; it is slow at -O1
                cxx += ["-DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP", "-DCCCL_DISABLE_NVTX"]
                cxx += [] if clang else ["-O2"]
            language = ["-x", "c++"]  # for a .cu, too, which g++ does not know
            if self.includes_all_of_torch:
                from toolchain import torch_headers

                all_of_it = torch_headers.uses_all(map(self.text, self.files))
                language += [torch_headers.ALL] * all_of_it
            if self.several:
                language.append("-DSIMULATOR_SEVERAL_SOURCES")  # see simulator/block.h
            if self.simulated:
                number, suffix = self.simulated
                language.append(f"-DSIMULATOR_ARCHITECTURE={number}")
                language += [f"-DSIMULATOR_ARCHITECTURE_{suffix.upper()}"] * bool(suffix)
            own = any(map(_THREAD_LOCAL.search, self.files.values()))
            simulators = simulator.compile_flags(clang, recipe.sources, own)
            return [*language, *simulators, *cxx, *check, *debug], []
        cxx = ["-O1", *cxx]  # more would only make bindings slower to compile
        if not machine.nvccs_host_is_clang():
            shared.append(no_unique)
        host = [flag if flag.startswith("-std") else f"-Xcompiler={flag}" for flag in shared]
        half = [] if self.includes_torch else _HALF_AS_NVCC_HAS_IT
        nvcc = [*self._extended_lambda, *host, *half, *ours]
        nvcc += [flag for arch in machine.architectures() for flag in machine.gencode(arch)]
        if machine.nvcc_release(self.compilers) >= (12, 1):
            nvcc.append("--split-compile=0")  # the same code, compiled on all cores
        if recipe.debug:
            return [*cxx, "-O0", "-g"], [*nvcc, "-G", "-g", "-O0"]
        return cxx, [*nvcc, "-lineinfo", "-Xptxas=-v"]  # the last one is for toolchain.resources

    @cached_property
    def tuned(self) -> tuple[str, ...]:
        """The constants that were best on this GPU, unless the recipe sets constants itself."""
        if not self._tables:
            return ()
        from toolchain.tuning import tuning_flags

        return tuning_flags(self._tuned_constants)

    @cached_property
    def tuned_by_shape(self) -> list[tuple[ShapeClass, dict[str, int]]]:
        """The same for each class of shapes: all constants of its build."""
        if not self._tables:
            return []
        from toolchain import tuning

        by_shape: dict[ShapeClass, dict[str, int]] = {}
        for read in self._read_tables(tuning.tuned_by_shape):
            for shapes, constants in read.items():
                by_shape[shapes] = {**by_shape.get(shapes, self._tuned_constants), **constants}
        return list(by_shape.items())

    @cached_property
    def _tuned_constants(self) -> dict[str, int]:
        from toolchain import tuning

        read = self._read_tables(tuning.tuned_constants)
        return {name: constants[name] for constants in read for name in constants}

    @cached_property
    def _tables(self) -> list[Path]:
        """The tuning tables that it uses; none if the recipe sets constants itself."""
        if self.recipe.target != "cuda":  # only GPUs have tables
            return []
        from toolchain import tuning

        tables = map(tuning.tuning_table, self.recipe.sources)
        there = [table for table in tables if table in self.files]
        return [] if tuning.sets_constants(self.recipe.flags) else there

    def _read_tables(self, read: Callable[[str, str], dict]) -> list[dict]:
        """The tables' sections for this GPU.

        Raises ValueError that names the file, for one that cannot be read.
        """
        from toolchain import tuning

        tables = []
        for table in self._tables if tuning.this_gpu() else ():
            try:
                tables.append(read(self.text(table), tuning.this_gpu()))
            except ValueError as error:
                raise ValueError(f"{table}: {error}") from None
        return tables

    @property
    def link_flags(self) -> list[str]:
        """The caller's flags that are for the linker."""
        return self._for_cpp.links

    @property
    def callers_flags(self) -> list[str]:
        """The caller's flags for a C++ compiler, in its syntax."""
        return self._for_cpp.flags

    @property
    def given(self) -> macros.Given:
        """The part of the caller's flags that is put at the top of each source; empty for a GPU."""
        return self._apart[1]

    @cached_property
    def macros(self) -> set[str]:
        """The user's macros, which the simulator's headers must not see."""
        return {*self.given.macros, *macros.defined_in(map(self.text, self.files))}

    @cached_property
    def _apart(self) -> tuple[list[str], macros.Given]:
        """The caller's flags: those for the compiler, and those for the top of each source."""
        flags = self.callers_flags
        if self.recipe.target == "cuda" or self.recipe.sources[0].is_relative_to(SIMULATOR):
            return flags, macros.Given({}, [])
        return macros.apart(flags)

    @cached_property
    def _for_cpp(self) -> Translated:
        from toolchain.nvccs_flags import for_cpp

        return for_cpp(self.recipe.flags, TORCHS_STANDARD if self.includes_torch else None)

    @property
    def _extended_lambda(self) -> list[str]:
        """nvcc's flag for __device__ lambdas, if a file may have one.

        With it nvcc includes <functional> first, which doubles the time of each of its steps for a
        small kernel.
        """
        texts = map(self.text, self.files)
        wanted = self.includes_torch or any(map(sources.may_have_device_lambda, texts))
        return ["--extended-lambda"] * wanted

    @cached_property
    def includes_torch(self) -> bool:
        return any(sources.includes_torch(self.text(path)) for path in self.files)

    @cached_property
    def speaks_of_torch(self) -> bool:
        """Whether any function of PyTorch or Python may be called by its name.

        The simulator's runtime finds such functions in its process.
        """
        if simulator.RUNTIME in self.recipe.sources:
            return False
        return any(re.search(_OF_TORCH, self.text(path)) for path in self.files)

    @property
    def notes(self) -> list[str]:
        """A sentence for each thing in sources and flags that has another meaning for nvcc."""
        notes = []
        if ops := self.registrations.set_aside:
            notes.append(
                f"{', '.join(ops)}: the implementation for CUDA runs, on the simulator, in place of"
                " the one for the CPU"
            )
        if self.recipe.target == "cpu" and (flags := self._for_cpp.dropped):
            notes.append(f"the CPU's compiler does without {', '.join(flags)}")
        return notes

    @property
    def expected(self) -> str:
        """Why compiling will take long; "" if it will not."""
        if not self.includes_all_of_torch:
            return ""
        if self.recipe.target == "cpu":
            return "PyTorch's headers take it some 15 seconds"
        return "PyTorch's headers take it most of a minute"

    @cached_property
    def includes_all_of_torch(self) -> bool:
        return any(sources.includes_all_of_torch(self.text(path)) for path in self.files)

    @cached_property
    def registrations(self) -> Registrations:
        """Raises: CompileError, for names that no build can have."""
        from toolchain.registrations import Registrations

        return Registrations(self)


@cache
def systems_folders() -> tuple[str, ...]:
    """The header folders of the system, Python, torch, CUDA and the simulator.

    Folders beside these may be the user's: a project below /usr/src, or a library that was
    installed to /usr/local.
    """
    import sysconfig  # late: a warm load does not need it

    paths = sysconfig.get_paths()
    pythons = {paths[name] for name in ("include", "platinclude", "stdlib", "purelib", "platlib")}
    home = machine.cuda_home()
    cudas = [str(home / name) for name in ("include", "targets")] if home else []
    of_system = ("/usr/include", "/usr/lib", "/usr/lib32", "/usr/lib64")
    folders = (*of_system, *pythons, str(Path(torch.__file__).parent), *cudas, str(SIMULATOR))
    # If a folder is reached by a link, g++ may name its files by their real paths.
    return tuple(dict.fromkeys((*folders, *map(os.path.realpath, folders))))


def is_systems(path: Path) -> bool:
    """Whether a file is in these folders, and so is not the user's."""
    return any(path.is_relative_to(folder) for folder in systems_folders())
