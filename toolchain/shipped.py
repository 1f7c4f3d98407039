"""A kernel's sources for a package of its own, which contains no loader.

    cuda/layer_norm.cu, cuda/layer_norm.cpp, cuda/include/...     for nvcc: as they are
    cpu/layer_norm/layer_norm.cu.cpp, ...                         the same, rewritten for g++
    simulator/runtime.cpp, include/..., executor/...              the runtime of those

with exactly the headers that compilers read. `toolchain.shipped_bindings` changes registrations.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import simulator
from simulator.device_code import Load
from toolchain import machine, macros, sources
from toolchain.code import SIMULATOR, Code
from toolchain.compile import for_the_cpu
from toolchain.errors import CompileError
from toolchain.shipped_bindings import Names, bound, namespace_in
from toolchain.sources import LIBRARY, label

_OF_HOPPER = re.compile(r"\bwgmma\b|\bsetmaxnreg\b|__CUDA_ARCH_FEAT_SM90_ALL|\bsm_90a\b")
_OF_ONE_RELEASE = re.compile(
    r"(?:torch/(?!headeronly/|csrc/stable/|csrc/inductor/aoti_torch/c/)|ATen/|c10/|pybind11/)"
)
_OF_THIS_MACHINE = re.compile(r"-m(?:arch|cpu|tls-dialect)=|-g\d?$|-O")


@dataclass(frozen=True)
class ShippedTarget:
    """The input of one compiler for a library.

    sources: the paths of compiled files; include: folders of headers, in order.
    flags: for the compiler of .cpp files; nvcc_flags: for .cu files; link: for the linker.
    """

    sources: list[str]
    include: list[str]
    flags: list[str]
    nvcc_flags: list[str] = field(default_factory=list)
    link: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Shipped:
    """The sources of one kernel, and how to compile them.

    files: texts by their paths in the package's folder of sources.
    originals: the user's files that they were made from, by the same paths.
    binding: "ops", "module" or "c"; exports: as in a build.
    is_stable: whether the sources use only PyTorch's stable ABI, so that the package works with
        later releases and other Python versions.
    namespace: of the operators, which both parts implement; "" for pybind11, where each part is a
        module.
    architectures: of GPUs, as in TORCH_CUDA_ARCH_LIST.
    """

    name: str
    files: dict[str, str]
    originals: dict[str, Path]
    cpu: ShippedTarget
    cuda: ShippedTarget
    binding: str
    exports: dict
    is_stable: bool
    namespace: str
    architectures: list[str]


def shipped(cpu: Code, cuda: Code, namespace: str, for_hub: bool = False) -> Shipped:
    """The sources of a kernel for both targets, for a package.

    namespace: of its operators, if the sources leave it to the build.
    for_hub: for Hugging Face's kernel-builder, which compiles one part at a time; each part defines
        its operators.

    Raises:
        CompileError: the simulator cannot run something in them, or a header is missing.
    """
    return _Shipping(cpu, cuda, namespace, for_hub).shipped()


class _Shipping:
    def __init__(self, cpu: Code, cuda: Code, namespace: str, for_hub: bool):
        self.codes = {"cpu": cpu, "cuda": cuda}
        self.name, self.for_hub = cpu.recipe.name, for_hub
        self.namespace = "" if cpu.binding == "module" else namespace_in(cpu) or namespace

    def shipped(self) -> Shipped:
        cuda, cpu = self.codes["cuda"], self.codes["cpu"]
        self.files: dict[str, str] = {}
        self.originals: dict[str, Path] = {}
        cuda_part = self._cuda_part(cuda)
        cpu_part = self._cpu_part(cpu)
        every = "".join(cuda.text(path) for path in self._users(cuda))
        return Shipped(
            name=self.name,
            files=self.files,
            originals=self.originals,
            cpu=cpu_part,
            cuda=cuda_part,
            binding=cpu.binding,
            exports=_callable(cpu.exports),
            is_stable=cpu.binding == "c" or self._is_stable(cpu),
            namespace=self.namespace,
            architectures=[
                "8.0",
                "9.0a" if _OF_HOPPER.search(every) else "9.0",
                "10.0",
                "12.0+PTX",
            ],
        )

    # ---- the places of files

    @staticmethod
    def _users(code: Code) -> list[Path]:
        """The user's files without tuning tables, which are for single GPUs."""
        kept = (p for p in code.files if not p.is_relative_to(SIMULATOR))
        return [p for p in kept if p.suffix not in (".json", ".toml")]

    @cached_property
    def _base(self) -> Path:
        """The folder whose contents go into a part's folder."""
        recipe = self.codes["cpu"].recipe
        beside = {p.parent for p in recipe.sources}
        beside |= {
            path.parent
            for code in self.codes.values()
            for path in self._users(code)
            if not any(path.is_relative_to(folder) for folder in self._folders(beside))
        }
        return Path(os.path.commonpath(beside))

    def _folders(self, beside: Iterable[Path]) -> list[Path]:
        """Folders of headers that are not the sources' own."""
        return [f for f in self.codes["cpu"].recipe.include if f == LIBRARY or f not in beside]

    @cached_property
    def _with_the_stem_of_a_cu(self) -> set[Path]:
        """Sources whose objects setuptools would give a .cu's name: x.cpp beside x.cu."""
        compiled = self.codes["cpu"].recipe.sources
        stems = {path.with_suffix("") for path in compiled if path.suffix == ".cu"}
        return {p for p in compiled if p.suffix != ".cu" and p.with_suffix("") in stems}

    def _place(self, path: Path) -> str:
        """The path of a user's file in a part's folder."""
        if path.is_relative_to(LIBRARY):
            return (Path("include") / path.relative_to(LIBRARY)).as_posix()
        if path.is_relative_to(self._base):
            place = path.relative_to(self._base)
            if path in self._with_the_stem_of_a_cu:
                place = place.with_stem(f"{path.stem}_binding")
            return place.as_posix()
        folders = self._folders({p.parent for p in self.codes["cpu"].recipe.sources})
        for number, folder in enumerate(folders):
            if path.is_relative_to(folder):
                return (Path(f"include_{number}") / path.relative_to(folder)).as_posix()
        raise CompileError(
            f"{label(path)} lies outside of every folder that a package could have: include it from"
            " a folder of headers, given with -I"
        )

    def _include(self, part: str, code: Code) -> list[str]:
        """The header folders of a part."""
        include: dict[str, None] = {}
        for folder in code.recipe.include:
            inside = [path for path in self._users(code) if path.is_relative_to(folder)]
            if inside:
                depth = len(inside[0].relative_to(folder).parts)
                place = Path(part, self._place(inside[0]))
                include[place.parents[depth - 1].as_posix()] = None
        return list(include)

    # ---- the parts

    def _texts(self, part: str, code: Code) -> dict[Path, str]:
        if code.binding == "c":
            return {path: code.text(path) for path in self._users(code)}
        if code.binding == "module":
            return {path: code.registrations.text(path) for path in self._users(code)}
        space = "TORCH_EXTENSION_NAME" if self.for_hub else self.namespace
        names = Names(space, defines=self.for_hub or part == "cpu", expanded=self.for_hub)
        return {path: bound(code, path, part, names) for path in self._users(code)}

    def _cuda_part(self, code: Code) -> ShippedTarget:
        compiled = []
        for path, text in self._texts("cuda", code).items():
            place = f"cuda/{self._place(path)}"
            self._add(place, text.removeprefix("\ufeff"), path)
            if path in code.recipe.sources:
                compiled.append(self._with_launchers(code, path, place))
        cxx, nvcc = code.flags
        nvcc = [flag for flag in nvcc if flag not in code.tuned]
        return ShippedTarget(
            sources=compiled,
            include=self._include("cuda", code),
            flags=["-O2", *_portable(cxx, code.recipe.flags)],
            nvcc_flags=_portable(nvcc, code.recipe.flags),
            link=code.link_flags,
        )

    def _with_launchers(self, code: Code, path: Path, place: str) -> str:
        """The source, or a file beside it that includes it and has launchers for its kernels."""
        if not (launchers := code.launchers[path]):
            return place
        beside = f"{place.removesuffix('.cu')}_launchers.cu"
        self._add(beside, f'#include "{Path(place).name}"\n{launchers}', path)
        return beside

    def _cpu_part(self, code: Code) -> ShippedTarget:
        folder, compiled = f"cpu/{self.name}", []
        texts = self._texts("cpu", code)
        load = Load.of(texts.values(), several=code.several, target=code.simulated)
        for path, text in for_the_cpu(code, texts, load, self._place).items():
            place = f"{folder}/{self._place(path)}"
            if path in code.recipe.sources:
                place += ".cpp" if path.suffix == ".cu" else ""
                compiled.append(place)
            self._add(place, text, path)
        include = [*self._include(folder, code), "simulator/include"]
        texts = [text for place, text in self.files.items() if place.startswith(f"{folder}/")]
        screens = macros.screens(code.macros, texts, [simulator.INCLUDE])
        if screens:
            include.insert(-1, f"{folder}/screens")
        self.files |= {f"{folder}/screens/{name}": text for name, text in screens.items()}
        flags = ["-O2", *_of_every_cpu(), *_portable(code.flags[0], code.recipe.flags)]
        self.files["simulator/runtime.cpp"] = simulator.RUNTIME.read_text()
        compiled.append("simulator/runtime.cpp")
        compiled += self._simulators_files(compiled, include, flags)
        exported = ["simulator_take_error"]
        if code.binding == "module":
            exported.append("PyInit_*")
        elif code.binding == "c":
            exported += [
                _symbol_of(name, export) for name, export in _callable(code.exports).items()
            ]
        exports = f"{folder}/exports.map"
        self.files[exports] = "{\n    global: " + "; ".join(exported) + ";\n    local: *;\n};\n"
        return ShippedTarget(
            sources=compiled,
            include=include,
            flags=flags,
            link=[
                *(flag for flag in simulator.LINK_FLAGS if "--wrap" in flag),
                f"-Wl,--version-script=CSRC/{exports}",
                *code.link_flags,
            ],
        )

    def _simulators_files(
        self, compiled: list[str], include: list[str], flags: list[str]
    ) -> Iterator[str]:
        """Add the simulator's files that the sources read, and those that are compiled.

        Raises:
            CompileError: the compiler does not find what they read.
        """
        left = list(compiled)
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder).resolve()
            (work / "simulator").mkdir()
            for name in ("include", "executor", "libraries"):
                (work / "simulator" / name).symlink_to(SIMULATOR / name)
            for place, text in self.files.items():
                _write(work / place, text)
            while left:
                for read in _read_by(work, left.pop(), include, flags):
                    path = Path(os.path.realpath(read))
                    if not path.is_relative_to(SIMULATOR):
                        continue
                    place = f"simulator/{path.relative_to(SIMULATOR).as_posix()}"
                    if place in self.files:
                        continue
                    self.files[place] = path.read_text()
                    source = simulator.LIBRARIES.get(
                        path.relative_to(simulator.INCLUDE).as_posix()
                        if path.is_relative_to(simulator.INCLUDE)
                        else ""
                    )
                    if source:
                        library = f"simulator/{source.relative_to(SIMULATOR).as_posix()}"
                        self.files[library] = source.read_text()
                        left.append(library)
                        yield library

    def _add(self, place: str, text: str, original: Path) -> None:
        self.files[place] = text
        self.originals[place] = original

    @staticmethod
    def _is_stable(code: Code) -> bool:
        """Whether no file includes PyTorch headers outside of the stable ABI."""
        own = (path for path in code.files if not path.is_relative_to(SIMULATOR))
        return not any(
            _OF_ONE_RELEASE.match(name)
            for path in own
            for _, name in sources.included(code.text(path))
        )


def _callable(exports: dict) -> dict:
    """The exports without templates, whose instances are compiled when they are used."""
    return {name: it for name, it in exports.items() if not (it and "template" in it)}


def _symbol_of(name: str, export: dict) -> str:
    from toolchain.signatures import launcher_of

    return launcher_of(name) if export and "kernel" in export else name


def _portable(flags: list[str], users: tuple[str, ...]) -> list[str]:
    """Flags without those that are for this machine, or for the loader."""
    left_out = {"-x", "c++", "-ftabstop=1", "-gstatement-frontiers", "-Xptxas=-v"}
    return [
        flag
        for flag in flags
        if flag in users
        or not (
            flag in left_out
            or _OF_THIS_MACHINE.match(flag)
            or flag.startswith(("-gencode", "-lineinfo", "--split-compile"))
        )
    ]


def _of_every_cpu() -> list[str]:
    """Flags for x86-64 CPUs since 2013, which have fused multiply-add and so round as GPUs do."""
    return ["-march=x86-64-v3"] if "-march=native" in simulator.compile_flags(False) else []


def _read_by(work: Path, source: str, include: list[str], flags: list[str]) -> list[str]:
    """The files that the compiler reads for a source."""
    import torch.utils.cpp_extension as cpp_extension  # late: it takes longer than a warm load

    command, own = machine.cxx_command()
    folders = [f"-I{folder}" for folder in include]
    system_folders = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    systems = [word for f in system_folders for word in ("-isystem", f)]
    done = subprocess.run(
        [*command, *own, "-M", "-fPIC", *folders, *systems, *flags, source],
        cwd=work,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise CompileError(f"the headers of {source} are not found:\n{done.stderr}")
    _, _, read = done.stdout.replace("\\\n", " ").partition(":")
    return [str(work / name) for name in read.split()]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
