"""From sources to a library, through torch.utils.cpp_extension.load."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import selectors
import shlex
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch.utils import cpp_extension

import simulator
from simulator.absent import HINT, absent, missing
from simulator.device_code import Load
from simulator.rewrite import Unsupported, line_one, rewrite
from toolchain import (
    cuda_ptx,
    dependent_names,
    idle,
    kernel_fatbins,
    libraries,
    machine,
    macros,
    nvcc_steps,
    parts,
    precompiled,
    sources,
    stub_libraries,
    torch_headers,
)
from toolchain.code import INSTALLED, SIMULATOR, Code, Part, Recipe, systems_folders
from toolchain.command_line import for_ninja, for_nvcc
from toolchain.errors import NO_PROCESS, CompileError, MissingTool, first_error
from toolchain.kernel_fatbins import OnDemand
from toolchain.notes import publish
from toolchain.objects import Earlier, Object, Objects
from toolchain.parts import Deferred
from toolchain.sources import label

# Compilers without a shared libstdc++ put a copy into every library. If its symbols were visible,
# the process's copies would mix, and a stream of one copy would crash with the locale of another.
_KEEP_TO_ITSELF = ["-Wl,--exclude-libs,ALL"] if sys.platform == "linux" else []

_writing = threading.Lock()  # cpp_extension keeps its state in its module


class _Failed(Exception):
    """The compilers' output, when they failed."""


class Compiled(NamedTuple):
    """The results of a compilation, besides the library.

    Attributes:
        output: the compilers' output.
        read: the user's files that they read.
        libraries: the headers of simulator.LIBRARIES that they read for the CPU.
        objects: the new objects that a later build may reuse, by the sources' positions.
        kernels: those that the library launches, if kernels are compiled on demand.
        image: the file with the GPU code of such a build, or of a part of it.
    """

    output: str
    read: set[Path]
    libraries: list[str]
    objects: dict[int, Object]
    kernels: Sequence[str] = ()
    image: Path | None = None


def compile_library(
    code: Code,
    name: str,
    work: Path,
    log: Path,
    progress: Callable[[str], None],
    earlier: Earlier,
    lifeline: int | None = None,
    deferred: Deferred | OnDemand | None = None,
) -> Compiled | None:
    """Compile what has changed since the `earlier` objects, and link it to `work`/`name`.so.

    Four times a second `progress` is called with the stage, as in "1 of 3: layer_norm.cu".

    lifeline: the end of a pipe, for a build that runs at idle priority and ends when the other end
        is closed.
    deferred: what is compiled later. None is returned if anything else would have to be compiled
        now (except bindings for lab.check, which take little time), if the deferred part is there
        already, or if it cannot be compiled on its own.

    Raises:
        CompileError: a source does not compile; the compilers' output is in `log`.
    """
    recipe = code.recipe
    to_compile, include, mirror = list(recipe.sources), list(recipe.include), None
    image: _Image | None = None
    if recipe.target == "cpu":
        mirror = _Mirror(work / "mirror")
        to_compile = mirror.write(code)
        include = [*map(mirror.place, include), *include]
        headers, others = [simulator.INCLUDE], []
        if code.cccl:
            texts = [code.text(path) for path in code.files]
            cccl, _ = code.cccl
            headers.insert(0, cuda_ptx.write(work / "cuda_ptx", texts, cccl, code.simulated))
            others = [cccl]
        screens = macros.screens(code.macros, mirror.written.values(), [*headers, *others])
        for header, text in screens.items():
            (place := work / "screens" / header).parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        include += [work / "screens"] * bool(screens) + headers
    elif code.registrations.fixed or recipe.part or isinstance(deferred, OnDemand):
        mirror = _Mirror(work / "mirror")
        first, change = "", dict
        if isinstance(deferred, OnDemand):
            first = kernel_fatbins.HEADER.read_text()
            change = functools.partial(kernel_fatbins.for_host, code)
            image = _Image.write(code, work, deferred.source, deferred.wanted)
        elif recipe.part:
            image = _Image.write(code, work, 0, recipe.part.names or None)
        to_compile = mirror.write_for_nvcc(code, change, first)
        include = [*map(mirror.place, include), *include]
    else:
        places = [work / "launchers" / str(number) for number in range(len(to_compile))]
        to_compile = [
            _with_launchers(code, path, place)
            for path, place in zip(to_compile, places, strict=True)
        ]
    written = mirror.written if mirror else {}
    changed = {deferred.source} if isinstance(deferred, OnDemand) else range(len(to_compile))
    objects = Objects(code, name, work, dict.fromkeys(changed, written), earlier)
    if recipe.part and not image:
        to_compile.append(work / "launchers.cpp")
        # The object of the whole build has all kernels.
        jumps = parts.jumps(() if objects.unchanged else recipe.part.jumps)
        to_compile[-1].write_text(parts.table(at for _, at in recipe.part.held) + jumps)
    if isinstance(deferred, Deferred):
        bindings = set(range(len(to_compile))) - {deferred.source}
        if deferred.source in objects.unchanged or not (
            recipe.check or objects.unchanged.keys() == bindings
        ):
            return None
        to_compile[deferred.source] = work / "launchers.cpp"
        to_compile[deferred.source].write_text(parts.jumps(deferred.functions))
    _write_build(code, name, to_compile, include, work, objects.unchanged, earlier, image)
    names = {n: p.name for n, p in enumerate(to_compile) if n not in objects.unchanged}
    is_users = _users(recipe)

    def watch(output: str) -> None:
        progress(stage_of(output, names))
        if not output:  # needed later: computed while the compilers work
            with contextlib.suppress(Exception):  # raised again later, unless they fail
                is_users(work)
                code.exports  # noqa: B018

    may_lack = recipe.target == "cpu" and code.includes_all_of_torch
    try:
        while True:
            try:
                output = _run_build(work, watch, lifeline, may_lack)
                break
            except _Failed as failed:
                if recipe.target != "cpu" or not mirror.add_keywords(code, str(failed)):
                    raise
    except _Failed as failed:
        publish(log, str(failed))
        error = first_error(str(failed), set(code.files), log)
        if recipe.target == "cpu" and (library := absent(error.message)):
            raise _refused(error, f"the simulator has no {library}", HINT) from None
        if (header := missing(error.message)) and "load(include=[...])" in (error.hint or ""):
            raise _refused(error, f"the header {header} is missing", error.hint) from None
        raise error from None

    def users(path: Path) -> Path | None:
        path = mirror.original(path) if mirror else path
        return path if is_users(path) and not path.is_relative_to(work) else None

    if recipe.part and image:
        return Compiled(output, set(), [], {}, image=image.file)
    if recipe.part and not objects.unchanged and not _is_apart(recipe.part, work / "0.o", code):
        return None
    compiled = objects.compiled(output, users)
    if isinstance(deferred, Deferred):
        compiled.pop(deferred.source, None)
    kernels: Sequence[str] | None = ()
    if isinstance(deferred, OnDemand):
        (host,) = work.glob(f"{deferred.source}.*o")
        kernels = kernel_fatbins.kernels_of(host)
    if kernels is None:
        return None
    for_later = {n: each for n, each in compiled.items() if objects.can_be_taken_over(n, each)}
    every = [*objects.unchanged.values(), *compiled.values()]
    read = {sources.labelled(file) for each in every for file in each.read}
    called = {header for each in every for header in each.called}
    in_order = [header for header in simulator.LIBRARIES if header in called]
    output += "".join(each.said for each in objects.unchanged.values())
    return Compiled(output, read, in_order, for_later, kernels, image.file if image else None)


def _is_apart(part: Part, compiled: Path, code: Code) -> bool:
    """Whether a part lacks no kernel that it needs, and has none that it must not have."""
    texts = list(map(code.text, code.files))
    if parts.calls_one_of(compiled, part.jumps) or parts.lacks_kernels(compiled, part.jumps, texts):
        return False
    return not (part.of_host and parts.has_kernels(compiled, texts))


def _refused(error: CompileError, message: str, hint: str) -> CompileError:
    """An error at the same place, without the compiler's message, which would add nothing."""
    return CompileError(message, path=error.path, line=error.line, column=error.column, hint=hint)


def _with_launchers(code: Code, path: Path, place: Path) -> Path:
    """The source or, if its kernels need launchers, a file in the new `place` with both."""
    if not (launchers := code.launchers[path]):
        return path
    place.mkdir(parents=True)
    copy = place / path.name
    copy.write_text(f'#include "{path}"\n{launchers}')
    return copy


_HEAD = r"(?:#include <[^>]*>\n)*"  # the beginning of a rewritten text
_known: dict[tuple[str, str, bool], tuple[Load, str]] = {}


def _rewritten(text: str, path: str, load: Load, of_library: bool) -> str:
    """The result of `rewrite`, cached: an edit changes only one of the texts."""
    key = text, path, of_library
    if key not in _known or _known[key][0] != load:
        if len(_known) > 500:
            _known.clear()
        _known[key] = load, rewrite(text, path, load, of_library)
    return _known[key][1]


def for_the_cpu(
    code: Code, texts: dict[Path, str], load: Load, name_of: Callable[[Path], str]
) -> dict[Path, str]:
    """The texts of code's files, rewritten for a C++ compiler and the simulator's headers.

    load: facts on all of them; name_of: returns a file's name for compilers.

    Raises:
        CompileError: the simulator cannot run something in a text.
    """
    result = {}
    heads: set[str] = set()  # the simulator's headers that begin the user's headers
    for path, text in texts.items():
        try:
            added, is_librarys = code.launchers.get(path, ""), path in code.of_library
            if added and code.recipe.part:  # these statements use the simulator's names
                added = macros.undefined(code.macros) + added
            written = _rewritten(text + added, name_of(path), load, is_librarys)
        except Unsupported as error:
            raise CompileError(
                error.message,
                path=path,
                line=error.line,
                column=error.column,
                hint=error.hint,
            ) from None
        by_nvcc = path in code.recipe.sources  # other files are as what includes them
        if by_nvcc:
            begins = line_one(name_of(path))
            written = written.replace(begins, code.given.text() + begins, 1)
        in_cu = "cuda_runtime.h" if path.suffix == ".cu" else None
        if first := precompiled.first(code, path) if by_nvcc else in_cu:
            written = f"#include <{first}>\n{written}"
        else:
            heads.update(re.match(_HEAD, written)[0].splitlines())
        result[path] = written
    if heads and any(map(sources.includes_within_braces, texts.values())):
        # A header inside of a class or a namespace would include them there, so they come first.
        before = "".join(f"{line}\n" for line in sorted(heads))
        for path in result.keys() & set(code.recipe.sources):
            first = re.match(r"(?:#include <[^>]*>\n)?", result[path])[0]
            result[path] = f"{first}{before}{result[path].removeprefix(first)}"
    return result


class _Mirror:
    """The user's files, rewritten for the simulator into a tree of the same shape.

    Because folders and symbolic links are mirrored, every relative #include finds the
    rewritten file; #line directives make compilers name the original.
    """

    def __init__(self, folder: Path):
        self.root = folder.resolve()
        self.written: dict[Path, str] = {}  # texts without `root`, by the originals' paths
        self._meant: dependent_names.Meant = {}

    def place(self, path: Path) -> Path:
        return self.root / path.relative_to(path.anchor)

    def original(self, path: Path) -> Path:
        if not path.is_relative_to(self.root):
            return path
        return Path("/", path.relative_to(self.root))

    def write(self, code: Code) -> list[Path]:
        """Rewrite all inputs; return what to compile."""
        for folder in code.recipe.include:
            self._make(folder)
        # Files below SIMULATOR are for a C++ compiler already.
        text_of = code.registrations.text
        texts = {p: text_of(p) for p in code.files if not p.is_relative_to(SIMULATOR)}
        # The same for a part as for the whole build.
        load = Load.of(texts.values(), several=code.several, target=code.simulated)
        device = Load.marks_of_device(texts.values()) if self._meant else frozenset()
        for path, places in self._meant.items():
            texts[path] = dependent_names.with_keywords(texts[path], places, device)
        if code.recipe.part:
            texts = {p: parts.without_instantiations(text) for p, text in texts.items()}
        for path, written in for_the_cpu(code, texts, load, label).items():
            self._write(path, self._with_places(written, texts))
            self._make_ways(path, code)
        return [p if p.is_relative_to(SIMULATOR) else self.place(p) for p in code.recipe.sources]

    def add_keywords(self, code: Code, output: str) -> bool:
        """Rewrite the inputs again with each `typename` and `template` that a compiler asked for
        and nvcc does not need; False if there is none."""
        meant = dependent_names.meant(output)
        if not meant:
            return False
        before = dict(self.written)
        for path, places in meant.items():
            if path in before:
                self._meant.setdefault(path, set()).update(places)
        self.write(code)
        return self.written != before

    def write_for_nvcc(
        self,
        code: Code,
        change: Callable[[Mapping[Path, str]], dict[Path, str]] = dict,
        first: str = "",
    ) -> list[Path]:
        """Write the inputs with the build's name in them, and with a further change of their texts.

        first: text to put before that of a .cu.
        """
        for folder in code.recipe.include:
            self._make(folder)
        texts = {p: code.registrations.text(p).removeprefix("\ufeff") for p in code.files}
        for path, text in change(texts).items():
            written = self._with_places(text, texts)
            written += code.launchers.get(path, "")
            before = first if path.suffix == ".cu" else ""
            self._write(path, before + line_one(label(path)) + written)
            self._make_ways(path, code)
        return list(map(self.place, code.recipe.sources))

    def _write(self, path: Path, text: str) -> None:
        self._make(path.parent)
        plain = text.replace(str(self.root), "")
        if self.written.get(path) != plain:  # unchanged files are not compiled again
            self.place(path).write_text(text)
            self.written[path] = plain

    def _make_ways(self, path: Path, code: Code) -> None:
        """Make the folders that a system looks up on the way to "sub/../x.h"."""
        for _, name in sources.included(code.text(path)):
            for folder in (path.parent, *code.recipe.include):
                if ".." in name and (way := folder / Path(name).parent).is_dir():
                    self._make(way)

    def _with_places(self, text: str, texts: dict[Path, str]) -> str:
        """`text` with each #include of an absolute path changed to the rewritten file."""

        def placed(include: re.Match) -> str:
            path = Path(sources.file_in("", include[2]))
            return f"{include[1]}{self.place(path) if path in texts else include[2]}"

        return re.sub(r'(#[ \t]*include(?:_next)?[ \t]*["<])(/[^">\n]+)', placed, text)

    def _make(self, folder: Path) -> None:
        """Make the mirrored folder, and the links on the way to it."""
        path = Path(folder.anchor)
        for part in folder.relative_to(path).parts:
            if part == "..":
                path = path.parent
                continue
            path /= part
            mirrored = self.place(path)
            if path.is_symlink():
                path = path.resolve()
                self._make(path)
                if not mirrored.is_symlink():
                    mirrored.symlink_to(self.place(path))
            else:
                mirrored.mkdir(exist_ok=True, parents=True)


class _Image(NamedTuple):
    """The GPU code of some kernels: its source, and the file that it is compiled to."""

    source: Path
    include: list[Path]
    file: Path
    alone: bool

    @classmethod
    def write(cls, code: Code, work: Path, number: int, wanted: Sequence[str] | None) -> _Image:
        """wanted: as in `OnDemand`."""
        mirror = _Mirror(work / "gpu")
        change = functools.partial(kernel_fatbins.for_gpu, wanted=wanted)
        source = mirror.write_for_nvcc(code, change)[number]
        if wanted is not None:
            with source.open("a") as file:
                file.write(kernel_fatbins.instantiations(wanted))
        folders = list(map(mirror.place, code.recipe.include))
        return cls(source, folders, work / "kernels.fatbin", bool(code.recipe.part))

    def added_to(self, text: str) -> str:
        """A ninja file that makes it, too, or only it."""
        include = " ".join(for_ninja(flag) for flag in for_nvcc(f"-I{f}" for f in self.include))
        goal = "" if self.alone else re.search(r"(?m)^default (.*)$", text)[1]
        text = re.sub(r"(?m)^default .*$", "", text)
        # ptxas must not report the resources of kernels without bodies.
        flags = re.search(r"(?m)^cuda_post_cflags = (.*)$", text)[1].replace("-Xptxas=-v", "")
        of_host = r"(?m)^build \S+: cuda_compile \S+$"
        text = re.sub(of_host, lambda edge: f"{edge[0]}\n  cuda_post_cflags = {flags}", text)
        return (
            f"{text}\nrule fatbin\n  command = $nvcc -fatbin --no-compress {include}"
            " $cuda_cflags $in -o $out $cuda_post_cflags\n"
            f"image_source = {_in_ninja(self.source)}\n"
            f"build {self.file.name}: fatbin $image_source\ndefault {self.file.name} {goal}\n"
        )


def _in_ninja(path: Path) -> str:
    return str(path).replace("$", "$$")


def _write_build(
    code: Code,
    name: str,
    to_compile: list[Path],
    include: list[Path],
    work: Path,
    compiled: Collection[int],
    earlier: Earlier,
    image: _Image | None,
) -> None:
    """torch.utils.cpp_extension.load with some of its inner steps replaced.

    It writes the ninja file that `_run_ninja` runs. It does not open the library, which is opened
    when it is in the cache. Paths and flags are quoted here, because torch passes some to ninja
    unquoted.

    compiled: the positions of sources whose objects are in `work` already.
    """
    command, cxx_flags = machine.cxx_command()

    def name_sources(directory: str, *_: object, **__: object) -> None:
        file = Path(directory, "build.ninja")
        text = _with_real_names(file.read_text(), to_compile, command, compiled)
        text = precompiled.added_to(text, code, earlier.precompiled, work)
        if code.recipe.check and not code.recipe.program:
            text = _with_plain_bindings(text, to_compile, code.recipe.trace)
        file.write_text(image.added_to(text) if image else text)

    home, for_cuda = machine.cuda_home(), code.recipe.target == "cuda"
    cxx, nvcc = code.flags
    folders = [f"-I{folder}" for folder in include]
    if code.cccl:  # last, so that the simulator's versions of CUDA's headers come first
        folders += ["-isystem", str(code.cccl[0])]
    if for_cuda and code.recipe.program:
        folders += libraries.include_flags(code, home)
    nvcc = for_nvcc([*folders, *nvcc]) if for_cuda else []
    link = _link_flags(work, home) if for_cuda else [*simulator.LINK_FLAGS]
    link += code.link_flags
    if image:
        link += kernel_fatbins.LINK_FLAGS
    is_run_here = any(path.suffix == ".cu" for path in code.recipe.sources)
    if not for_cuda and is_run_here and not code.recipe.program:  # with the runtime
        link += simulator.LIBRARY_LINK_FLAGS
    if code.recipe.check:
        link += simulator.CHECK_LINK_FLAGS
    if code.recipe.trace:
        link += simulator.TRACE_LINK_FLAGS
    if code.recipe.program:
        link += libraries.link_flags(code, home if for_cuda else None, work)
    elif code.binding != "c" or not code.speaks_of_torch:
        are_noted = code.binding != "c"
        link += stub_libraries.flags(earlier.stub_libraries, work, code.link_flags, are_noted)
    taken_over = {
        "_run_ninja_build": name_sources,
        "_import_module_from_library": lambda *_: None,
        "verify_ninja_availability": _require_ninja,  # torch's reports every failure as absence
        "JIT_EXTENSION_VERSIONER": _UNVERSIONED,
        "CUDA_HOME": str(home) if home else None,
        "TORCH_LIB_PATH": for_ninja(cpp_extension.TORCH_LIB_PATH),  # the folder may contain spaces
    }
    environment = {"PATH": _path(), "CXX": command[-1]}
    with (
        _writing,
        _in_place_of(vars(cpp_extension), taken_over),
        _in_place_of(os.environ, environment),
    ):
        cpp_extension.load(
            name=name,
            sources=[f"/{number}{path.suffix}" for number, path in enumerate(to_compile)],
            extra_cflags=list(map(for_ninja, [*folders, *cxx])),
            extra_cuda_cflags=list(map(for_ninja, nvcc)),
            extra_ldflags=list(map(for_ninja, [*cxx_flags, *_KEEP_TO_ITSELF, *link])),
            build_directory=str(work),
            with_cuda=for_cuda,
            is_python_module=False,
        )


@contextlib.contextmanager
def _in_place_of(values: MutableMapping[str, Any], others: dict[str, Any]) -> Iterator[None]:
    """In this block a mapping has other values; afterwards the earlier ones."""
    before = {name: values[name] for name in others if name in values}
    values.update(others)
    try:
        yield
    finally:
        for name in others.keys() - before.keys():
            del values[name]
        values.update(before)


def _path() -> str:
    """PATH for commands.

    A notebook's kernel may run without its environment's bin folder, where pip put ninja.
    """
    return os.pathsep.join([os.environ.get("PATH", ""), sysconfig.get_path("scripts")])


# Replaces torch's record of earlier builds, because each build has a folder of its own.
_UNVERSIONED = SimpleNamespace(
    get_version=lambda name: None, bump_version_if_changed=lambda name, *_, **__: 0
)


def _with_real_names(
    text: str, to_compile: list[Path], compiler: list[str], compiled: Collection[int]
) -> str:
    """torch's ninja file, with the sources in place of /0.cu, /1.cpp and so on.

    What is compiled already is only linked. Sources may have any path, and two sources of the same
    name have separate objects. ninja reads no depfiles: it would not understand some names, and
    needs them only for second builds.
    """
    names = {f"source{n}": _in_ninja(path) for n, path in enumerate(to_compile)}
    text = re.sub(r"(?m)^(build \S+: \w+) /(\d+)\.\w+$", r"\1 $source\2", text)
    text = re.sub(r"(?m)^ *(depfile|deps) = .*\n", "", text)
    text = text.replace("-MMD -MF", "-MD -MF")  # a user's header may be in a system folder
    for number in compiled:
        text = re.sub(rf"(?m)^build \S+: \w+ \$source{number}$\n", "", text)
        text = text.replace(f" {number}.cuda.o", f" {number}.o")  # where the linker looks for it
    for number, path in enumerate(to_compile):
        if path.suffix == ".c":  # in a program: nvcc compiles it as C, too
            edge = rf"(?m)^build \S+: \w+ \$source{number}$"
            text = re.sub(edge, lambda match: f"{match[0]}\n  cflags = $cflags -x c", text)
    if len(compiler) > 1:
        words = " ".join(map(for_ninja, compiler))
        text = re.sub(r"(?m)^cxx = .*$", lambda _: f"cxx = {words}", text)
    if "PYTORCH_NVCC" not in os.environ:  # that may be a compiler cache, which needs whole commands
        by_steps = " ".join(map(for_ninja, nvcc_steps.COMMAND))
        text = text.replace("command = $nvcc ", f"command = {by_steps} $nvcc ")
        # Only a CUDA build of torch asks for a depfile.
        text = text.replace("$nvcc  $cuda_cflags", "$nvcc -MD -MF $out.d $cuda_cflags")
    return "".join(f"{name} = {path}\n" for name, path in names.items()) + text


def _with_plain_bindings(text: str, to_compile: list[Path], trace: bool) -> str:
    """A ninja file that instruments only kernels, for lab.check.

    Bindings are not watched, so their objects are those of other builds. An inline function that
    both have is taken from the first object, which is a kernel's.
    """
    check = " ".join(map(for_ninja, simulator.check_flags(trace)))
    plain = re.search(r"(?m)^cflags = (.*)$", text)[1].replace(f" {check}", "")
    kernels = [path.suffix == ".cu" for path in to_compile]
    for number, is_kernel in enumerate(kernels):
        if not is_kernel:
            edge = rf"(?m)^build \S+: \w+ \$source{number}$"
            text = re.sub(edge, lambda match: f"{match[0]}\n  cflags = {plain}", text)
    in_order = sorted(range(len(kernels)), key=lambda number: not kernels[number])
    objects = " ".join(f"{number}.o" for number in in_order)
    return re.sub(r"(?m)^(build \S+: link) .*$", rf"\1 {objects}", text)


def _require_ninja() -> None:
    if shutil.which("ninja", path=_path()) is None:
        raise MissingTool("no ninja, which runs the compilers: pip install ninja")


def _link_flags(work: Path, home: Path | None) -> list[str]:
    """Flags that resolve torch's -lcudart, -lc10_cuda and -ltorch_cuda for every build of torch.

    The CUDA wheels have libcudart.so.13, but no libcudart.so to link with. A CPU build of torch has
    no CUDA libraries, and a kernel that is built with it for another machine needs none at link
    time: an empty linker script replaces them.
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


def stage_of(output: str, names: dict[int, str]) -> str:
    """ninja's progress, as in "1 of 3: layer_norm.cu": it prints a line for each finished step.

    names: those of the sources that it compiles, by position among all sources.
    """
    ended = re.findall(r"^\[\d+/\d+\] (.*)", output, re.MULTILINE)
    made = {int(number) for line in ended for number in re.findall(r" -o (\d+)\.", line)}
    left = ", ".join(name for number, name in names.items() if number not in made)
    return f"{len(ended) + 1} of {len(names) + 1}: {left or 'linking'}"


def _run_build(
    directory: Path, watch: Callable[[str], None], lifeline: int | None, may_lack: bool
) -> str:
    """`_run_ninja`, repeated after some failures: without precompiled headers if these may be the
    cause, with all of PyTorch's headers if it `may_lack` some, and with one compiler at a time if
    the machine cannot start more processes."""
    try:
        return _run_ninja(directory, watch, lifeline)
    except _Failed as failed:
        if re.search(NO_PROCESS, str(failed)):
            return _run_ninja(directory, watch, lifeline, jobs=1)
        file = directory / "build.ninja"
        text = file.read_text()
        retry = precompiled.without(text, str(failed))
        if retry is None and may_lack and torch_headers.may_lack(text, str(failed)):
            file.write_text(precompiled.with_all_of_torch(text))
            return _run_ninja(directory, watch, lifeline)
        if retry is None:
            raise
        text, places = retry
        file.write_text(text)
        output = _run_ninja(directory, watch, lifeline)
        for place in places:
            precompiled.refuse(place)
        return output


def _run_ninja(
    directory: Path, watch: Callable[[str], None], lifeline: int | None, jobs: int | None = None
) -> str:
    """Run the compilers; if this process is ended early, they end too.

    They have a process group of their own, so that this process passes on interrupts. At idle
    priority they stay in this process's session, because Linux divides cores among sessions.

    `watch` is called four times a second with their output so far; lifeline: as in
    `compile_library`; jobs: the most compilers at a time, or None for ninja's choice.
    """
    ninja = ["ninja", "-v", *([f"-j{jobs}"] if jobs else [])]
    try:
        process = subprocess.Popen(
            [*(_mortal() if lifeline is None else idle.COMMAND), *ninja],
            cwd=directory,
            env={**os.environ, "PATH": _path(), "LC_ALL": "C.UTF-8", "LANGUAGE": "C"},
            stdin=lifeline,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=lifeline is None,
            process_group=None if lifeline is None else 0,
        )
    except BlockingIOError as error:  # it cannot fork
        raise _Failed(str(error)) from None
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
    # The log shows nvcc's own command.
    text = output.decode(errors="replace").replace(f"{shlex.join(nvcc_steps.COMMAND)} ", "")
    if process.returncode:
        raise _Failed(text)
    return text


@functools.cache
def _mortal() -> list[str]:
    """A command's prefix with which it is terminated when this process dies of a signal.

    Linux does that for processes that ask for it, as setpriv (util-linux) does. ninja passes the
    signal on.
    """
    command = ["setpriv", "--pdeathsig", "TERM"]
    try:
        asked = subprocess.run([*command, "true"], capture_output=True, timeout=machine.PATIENCE)
    except (OSError, subprocess.SubprocessError):
        return []
    return [] if asked.returncode else command


def _users(recipe: Recipe) -> Callable[[Path], bool]:
    """A function that tells whether a file is the user's, and not one of the system, a compiler,
    Python, torch or CUDA, which the digest covers otherwise. Depfiles name hundreds of those."""

    def beginnings(folders: Iterable[Path | str]) -> tuple[str, ...]:
        return tuple(f"{folder}{os.sep}" for folder in folders)

    # The project's folder may be below a user's folder.
    simulators = beginnings([SIMULATOR, Path(__file__).parent])
    users = beginnings([*(p.parent for p in recipe.sources), *recipe.include, INSTALLED])
    systems = beginnings(systems_folders())

    @functools.cache
    def compilers() -> tuple[str, ...]:
        command, flags = machine.cxx_command()
        commands = {(*command, *flags), ("g++",)}  # g++ is nvcc's; asked if no other one knows
        return beginnings(f for words in commands for f in machine.compilers_headers(*words))

    def is_users(path: Path) -> bool:
        name = str(path)
        if name.startswith((*simulators, *users)):
            return not name.startswith(simulators)
        return not name.startswith(systems) and not name.startswith(compilers())

    return is_users
