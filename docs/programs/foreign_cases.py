"""What is tried of a folder of somebody's sources: programs, bindings for PyTorch, lone kernels."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from docs.programs.foreign_calls import CALLS, Call, call_of
from docs.programs.foreign_sizes import Smaller, smaller_of
from jitload import blank, without_comments

SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")
# Folders that samples share, and whose own folders they may mean.
_HEADERS = ("Common", "common", "headers", "inc", "include", "includes", "tools/util/include")
_MAIN = re.compile(r"\b(?:int|void|auto)\s+main\s*\(")
_INCLUDE = re.compile(r'#[ \t]*include[ \t]*["<]([^">\n]+)[">]')
_TORCH = re.compile(r"(torch|ATen|c10)/")

# What a file needs besides CUDA C++ and its runtime, by the names of headers.
GRAPHICS = {
    r"(GL|GLES\d?|EGL|GLFW)/.*|helper_(gl|egl|glut)\w*\.h|rendercheck\w*\.h|cuda_(gl|egl)\w*\.h"
    r"|.*(glut|glew|glad|gl_helper|gpu_anim|cpu_anim|cpu_bitmap)\w*\.h": "OpenGL",
    r"vulkan/.*|.*Vulkan\w*\.h|linmath\.h": "Vulkan",
    r"d3d\w*\.h|.*DirectX\w*\.h|dxgi\w*\.h|[dD]3DX?\w*\.h": "Direct3D",
    r"FreeImage\.h|.*ImagesCPU\.h|.*ImageIO\.h": "FreeImage",
    r"opencv2/.*|opencv\w*/.*": "OpenCV",
    r"mpi\.h": "MPI",
    r"nvsci\w*\.h|NvSci\w*|nvmedia\w*\.h|.*cudaNvSci.*": "NvSci",
    r"X11/.*": "X11",
}
LIBRARIES = {
    r"cufft\w*\.h|cufftXt\.h": "cuFFT",
    r"cusparse\w*\.h": "cuSPARSE",
    r"cusolver\w*\.h": "cuSOLVER",
    r"cudnn\w*\.h": "cuDNN",
    r"cutensor\w*\.h": "cuTENSOR",
    r"nccl\w*\.h": "NCCL",
    r"nppi?\w*\.h|npp.*\.h|Exceptions\.h": "NPP",
    r"nvjpeg\w*\.h": "nvJPEG",
    r"nvrtc\w*\.h|nvrtc_helper\.h": "NVRTC",
    r"cuda\.h|helper_cuda_drvapi\.h|cudaProfiler\.h|drvapi_error_string\.h": "the driver's API",
    r"nvshmem\w*\.h": "NVSHMEM",
    r"nvml\.h": "NVML",
    r"nvvm\.h|nvJitLink\.h|nvFatbin\.h": "libNVVM and nvJitLink",
    r"(cutlass|cute)/.*": "CUTLASS",
    r"omp\.h": "OpenMP",
    r"nvbench/.*": "NVBench",
    r"cudla\.h": "cuDLA",
    r"gtest/.*|benchmark/benchmark\.h": "Google's test or benchmark",
    r"(nvtx3/|nvToolsExt).*": "NVTX",
    r"thunderkittens.*|kittens.*": "ThunderKittens",
}
_WAYS = {  # what of CUDA it needs that not every simulator would run
    r"\basm\s*(?:volatile|__volatile__)?\s*\(|\b__asm__|\basm\s+volatile": "inline PTX",
    r"\bwmma::|nvcuda::|<mma\.h>|\b(?:mma|wmma\.mma)\.sync\b|\bwgmma\.": "tensor cores",
    r"\bcp\.async\b|__pipeline_memcpy_async|\bmemcpy_async\b|\bmbarrier\.": "asynchronous copies",
    r"\bCUtensorMap\b|cp_async_bulk|cp\.async\.bulk|<cuda/ptx>": "TMA",
    r"__cluster_dims__|this_cluster|cluster_group|cudaLaunchKernelEx|::cluster\b": "clusters",
    r"\btcgen05\.": "Blackwell's tensor cores",
    r"\bFIXME\b": "its reader to fill a gap",
}
MODERN = ("tensor cores", "asynchronous copies", "TMA", "clusters")  # of these


@dataclass(frozen=True)
class Case:
    """One thing to try.

    Attributes:
        source: the name of the folder that was given.
        name: the path in it of the file, or of the folder of a sample with several.
        kind: "program", "binding" or "kernels".
        files: what is compiled together.
        include: folders of headers.
        needs: what it needs besides CUDA C++ and its runtime, and which of _WAYS.
        graphics: whether that is a library of graphics or the like, which leaves it out.
        folder: where a program runs.
        root: the folder that was given.
        others: sources beside a program that it may need as well.
        arguments: the program's, one list for each way to run it.
    """

    source: str
    name: str
    kind: str
    files: tuple[Path, ...]
    include: tuple[Path, ...] = ()
    needs: tuple[str, ...] = ()
    graphics: bool = False
    others: tuple[Path, ...] = ()
    arguments: tuple[tuple[str, ...], ...] = ((),)
    folder: Path = field(default=Path())
    root: Path = field(default=Path())

    @property
    def call(self) -> Call | None:
        """How its functions are called, where it is known."""
        return call_of(self.source, self.name)

    @property
    def smaller(self) -> Smaller | None:
        """What is other in a program that would take hours."""
        return smaller_of(self.source, self.name)

    @property
    def own(self) -> list[Path]:
        """The files, and what they include of somebody's own."""
        return _own(self.files, self.include)

    @property
    def standard(self) -> str:
        """That of C++ which the nearest list of how to build it asks for, beyond C++17."""
        for folder in (self.folder, *self.folder.parents):
            for name in ("CMakeLists.txt", "Makefile", "setup.py"):
                if (folder / name).is_file():
                    said = re.findall(
                        r"(?:STANDARD|-std=(?:c|gnu)\+\+)\s*(2\d)", _text(folder / name)
                    )
                    if said:
                        return max(said)
            if folder == self.root:
                break
        return ""

    @property
    def digest(self) -> str:
        """Of what is compiled, with its own headers."""
        found = hashlib.sha256()
        for path in sorted({*self.files, *self.own}):
            found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return found.hexdigest()[:16]


def cases(root: Path) -> list[Case]:
    """All of a folder, in the order of their names."""
    paths = sorted(filter(_is_source, root.rglob("*")))
    taken: set[Path] = set()
    found = []
    for listing in sorted(root.rglob("CMakeLists.txt")):
        for name, files, linked in _executables(listing):
            is_new = not taken.intersection(files)
            files = [*files, *linked]
            if any(path.suffix == ".cu" for path in files) and is_new:
                taken.update(files)
                place = listing.parent.relative_to(root).as_posix()
                own = place if Path(place).name == name or place == "." else f"{place}/{name}"
                own = name if own == "." else own
                found.append(_case(root, own, files))
    kernels = [p for p in paths if p.suffix == ".cu" and p not in taken]
    included = {name for path in paths for name in _includes(path) if name.endswith(".cu")}
    included = {Path(name).name for name in included}
    for path in kernels:
        if path.name in included and not _has_main(path):
            continue  # it is tried with what includes it
        if path.name.startswith("LICENSE"):
            continue
        found.append(_case(root, path.relative_to(root).as_posix(), [path]))
    if any(call.source == root.name for call in CALLS):
        headers = (path.relative_to(root).as_posix() for path in root.rglob("*.cuh"))
        found += [_case(root, n, [root / n]) for n in headers if call_of(root.name, n)]
    return sorted(found, key=lambda case: case.name)


def _is_source(path: Path) -> bool:
    return path.suffix in SOURCES and path.is_file()


def _is_of_root(root: Path, name: str, include: list[Path]) -> bool:
    """Whether a header is only found from the folder that was given."""
    known = any((folder / name).is_file() for folder in include)
    return not known and (root / name).is_file()


def _case(root: Path, name: str, files: list[Path]) -> Case:
    first = next((path for path in files if _has_main(path)), files[0])
    parents = [p for p in (first.parent, *first.parent.parents) if p == root or root in p.parents]
    include = [p / h for p in parents for h in _HEADERS if (p / h).is_dir()]
    include += [p for folder in include for p in sorted(folder.iterdir()) if p.is_dir()]
    include = [*dict.fromkeys(path.parent for path in files), *include]
    if any(_is_of_root(root, name, include) for path in files for name in _includes(path)):
        include.append(root)
    call = call_of(root.name, name)
    include += [root / folder for folder in call.include] if call else []
    own = _own(tuple(files), tuple(include))
    headers = {header for path in own for header in _includes(path)}
    graphics = _needed(GRAPHICS, headers)
    needs = [*graphics, *_needed(LIBRARIES, headers)]
    used = own if call else [p for p in own if not _is_shared(p, include)]
    texts = [without_comments(_text(path)) for path in used]
    needs += [what for way, what in _WAYS.items() if any(re.search(way, t) for t in texts)]
    others: list[Path] = []
    if len(files) == 1:
        folders = dict.fromkeys(path.parent for path in own)
        beside = [p for folder in folders for p in sorted(folder.iterdir()) if _is_source(p)]
        stems = {path.stem for path in own}
        beside = [p for p in beside if p.parent == first.parent or p.stem in stems]
        others = [p for p in beside if p not in own and not _has_main(p)]
    if any(_has_main(path) for path in files):
        kind = "program"
    elif any(_TORCH.match(header) for header in headers):
        kind = "binding"
        places = [p for p in first.parents[:2] if p == root or root in p.parents]
        files = [
            *files,
            *(
                p
                for place in places
                for p in sorted(place.glob("*.cpp"))
                if _is_source(p) and _binds(p)
            ),
        ]
    else:
        kind = "kernels"
    return Case(
        source=root.name,
        name=name,
        kind=kind,
        files=tuple(files),
        include=tuple(dict.fromkeys(include)),
        needs=tuple(dict.fromkeys(needs)),
        graphics=bool(graphics),
        others=tuple(others),
        arguments=_arguments(root.name, name, files) if kind == "program" else ((),),
        folder=first.parent,
        root=root,
    )


def _executables(listing: Path) -> Iterator[tuple[str, list[Path], list[Path]]]:
    """The programs of a CMakeLists.txt, as far as it names their sources: their own, and those of
    the libraries of the same list that they are linked with."""
    text = re.sub(r"#.*", "", listing.read_text(errors="replace"))
    variables = {"CMAKE_CURRENT_SOURCE_DIR": str(listing.parent), "PROJECT_NAME": ""}
    if project := re.search(r"project\s*\(\s*(\w+)", text, re.IGNORECASE):
        variables["PROJECT_NAME"] = project[1]
    for name, value in re.findall(r"\bset\s*\(\s*(\w+)\s+([^()]*)\)", text, re.IGNORECASE):
        variables.setdefault(name, value)
    text = re.sub(r"\$\{(CMAKE_CURRENT|PROJECT|CMAKE)_SOURCE_DIR\}/?", "", text)
    for name, value in re.findall(r"\bfile\s*\(\s*GLOB\w*\s+(\w+)\s+([^()]*)\)", text):
        variables[name] = _globbed(listing.parent, value.replace('"', "").split())
    for value, name in re.findall(r"\baux_source_directory\s*\(\s*(\S+)\s+(\w+)\s*\)", text):
        variables[name] = _globbed(listing.parent, [f"{value}/*{suffix}" for suffix in SOURCES])
    for _ in range(3):
        text = re.sub(r"\$\{(\w+)\}", lambda m: variables.get(m[1], m[0]), text)
    targets = {}
    for what, name, listed in re.findall(
        r"\badd_(executable|library)\s*\(\s*([\w.-]+)\s+([^()]*)\)", text
    ):
        words = [word.strip('"') for word in listed.split()]
        files = [listing.parent / word for word in words if Path(word).suffix in SOURCES]
        targets[name] = what, files
    linked = re.findall(r"\btarget_link_libraries\s*\(\s*([\w.-]+)\s+([^()]*)\)", text)
    for name, (what, files) in targets.items():
        words = [word for target, listed in linked if target == name for word in listed.split()]
        more = [path for word in words if word in targets for path in targets[word][1]]
        if what == "executable" and files and all(path.is_file() for path in [*files, *more]):
            yield name, *([path.resolve() for path in each] for each in (files, more))


def _globbed(folder: Path, patterns: list[str]) -> str:
    paths = (path for pattern in patterns for path in folder.glob(pattern.lstrip("/")))
    return " ".join(sorted(str(path.relative_to(folder)) for path in paths))


def _arguments(source: str, name: str, files: list[Path]) -> tuple[tuple[str, ...], ...]:
    smaller = smaller_of(source, name)
    return (smaller.arguments,) if smaller and smaller.arguments else _choices(files)


def _choices(files: list[Path]) -> tuple[tuple[str, ...], ...]:
    """The numbers of kernels, where a program takes one as its first argument."""
    codes = [_code(path) for path in files]
    for code in codes:
        chosen = re.search(r"(\w+)\s*=\s*(?:std::)?(?:atoi|stoi)\s*\(\s*argv\s*\[\s*1\s*\]", code)
        if chosen is None:
            continue
        for other in codes:
            switch = re.search(rf"\bswitch\s*\(\s*{chosen[1]}\s*\)\s*\{{", other)
            if switch:
                numbers = re.findall(r"\bcase\s+(\d+)\s*:", _block(other, switch.end()))
                return tuple((number,) for number in dict.fromkeys(numbers)) or ((),)
    return ((),)


def _block(code: str, start: int) -> str:
    depth = 1
    for end in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[end], 0)
        if depth == 0:
            return code[start:end]
    return code[start:]


def _needed(table: dict[str, str], headers: set[str]) -> list[str]:
    return [what for way, what in table.items() if any(re.fullmatch(way, h) for h in headers)]


def _is_shared(path: Path, include: list[Path]) -> bool:
    """Whether a header is one that many samples share, of which each uses a part."""
    return path.suffix not in SOURCES and any(
        path.is_relative_to(place) for place in include if place.name in ("Common", "common")
    )


@cache
def _text(path: Path) -> str:
    return path.read_text(errors="replace")


@cache
def _code(path: Path) -> str:
    return blank(without_comments(_text(path)))


@cache
def _includes(path: Path) -> frozenset[str]:
    return frozenset(_INCLUDE.findall(without_comments(_text(path))))


def _has_main(path: Path) -> bool:
    return "main" in _text(path) and _MAIN.search(_code(path)) is not None


def _binds(path: Path) -> bool:
    return re.search(r"\b(TORCH_LIBRARY\w*|PYBIND11_MODULE)\b", _text(path)) is not None


def _own(files: tuple[Path, ...], include: tuple[Path, ...]) -> list[Path]:
    """The files, and what they include of somebody's own."""
    found = list(files)
    for path in found:  # which grows meanwhile
        for name in sorted(_includes(path)):
            places = (place / name for place in (path.parent, *include))
            header = next((place.resolve() for place in places if place.is_file()), None)
            if header and header not in found:
                found.append(header)
    return found
