"""The machine: targets, compilers, architectures."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import torch

from simulator.architectures import Architecture
from toolchain.errors import MissingTool
from toolchain.notes import digest_of, read_note, write_note

TARGETS = ("cuda", "cpu")
OLDEST_CLANG = 16  # an LLVM release; Apple's numbers differ
PATIENCE = 30  # seconds to wait for a compiler's version, even on a busy machine
GET_CXX = (
    "Debian: apt install g++; conda: conda install cxx-compiler; macOS: xcode-select --install"
)


def output_of(command: list[str], text: str = "") -> str | None:
    """A program's output for a text; None if it fails, is missing or does not answer."""
    try:
        run = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout if run.returncode == 0 else None


def cxx() -> str:
    """The C++ compiler's command, chosen as torch chooses it."""
    return os.environ.get("CXX") or "c++"


def cxx_command() -> tuple[list[str], list[str]]:
    """The C++ compiler's command and the flags that CXX names after it, as in "ccache g++ -m64".

    Raises:
        MissingTool: CXX cannot be read.
    """
    wanted = cxx()
    if not re.search(r"\s", wanted) or shutil.which(wanted):  # a path may contain spaces
        return [wanted], []
    import shlex  # late: it would slow the import

    try:
        words = shlex.split(wanted)
    except ValueError as error:
        raise MissingTool(f"CXX is {wanted!r}, which no shell could read: {error}") from None
    flags = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
    return words[:flags] or [wanted], words[flags:]


def found_cxx() -> list[str]:
    """The paths of the C++ compiler and of programs before it in CXX, as in "ccache g++".

    Raises:
        MissingTool: one of them is missing; the message says how to get it.
    """
    words, _ = cxx_command()
    paths = list(map(shutil.which, words))
    if None in paths[:-1]:
        missing = words[paths.index(None)]
        raise MissingTool(
            f"{missing!r} is not on PATH, and CXX is {cxx()!r}: install it, or leave it out"
        )
    if paths[-1] is None:
        raise MissingTool(f"no C++ compiler: {words[-1]!r} is not on PATH. {GET_CXX}, or set CXX")
    return paths


def default_target() -> str:
    """The default target of `load`: "cuda" or "cpu"."""
    wanted = os.environ.get("JITLOAD_TARGET")
    if wanted:
        return checked_target(wanted, "JITLOAD_TARGET")
    return "cuda" if torch.cuda.is_available() and cuda_home() else "cpu"


def device() -> torch.device:
    """The device of tensors for the default target."""
    return torch.device(default_target())


def checked_target(target: str, origin: str) -> str:
    if target not in TARGETS:
        raise ValueError(f"{origin} is {target!r}; wanted one of {', '.join(TARGETS)}")
    return target


def in_wheels(pattern: str, package: str = "nvidia") -> list[Path]:
    """Files and folders of NVIDIA's wheels, or of another package."""
    spec = importlib.util.find_spec(package)
    places = map(Path, (spec and spec.submodule_search_locations) or ())
    return [path for place in places for path in sorted(place.glob(pattern))]


def cuda_home() -> Path | None:
    """The CUDA toolkit's folder: CUDA_HOME, nvcc on PATH, the nvcc wheel, /usr/local/cuda."""
    candidates = [Path(os.environ[v]) for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    if on_path := shutil.which("nvcc"):
        candidates.append(Path(on_path).resolve().parent.parent)
    candidates += [*in_wheels("*"), Path("/usr/local/cuda")]
    # nvcc.profile is beside the real nvcc, but not beside a wrapper script named nvcc.
    return next((home for home in candidates if (home / "bin/nvcc.profile").is_file()), None)


GET_TOOL = {
    "cuobjdump": "pip install nvidia-cuda-cuobjdump",
    "nvdisasm": "pip install nvidia-cuda-nvdisasm",
}


def cuda_tool(name: str) -> Path:
    """A program of CUDA: in the toolkit, on PATH, in a wheel of NVIDIA, or Triton's copy.

    Raises:
        MissingTool: it was not found; the message says how to get it.
    """
    home = cuda_home()
    candidates = [home / "bin" / name] if home else []
    if on_path := shutil.which(name):
        candidates.append(Path(on_path))
    candidates += in_wheels(f"*/bin/{name}")
    candidates += in_wheels(f"backends/nvidia/bin/{name}", "triton")
    for path in candidates:
        if os.access(path, os.X_OK) and path.is_file():
            return path
    raise MissingTool(
        f"no {name}: it comes with the CUDA toolkit (set CUDA_HOME, or put it on PATH), in a wheel"
        f" ({GET_TOOL[name]}), and inside of Triton's package (pip install triton)"
    )


OLDEST_CCCL = 3_000_000  # NVIDIA's Thrust, CUB and libcu++, version 3.0.0


@cache
def cccl() -> tuple[Path, int] | None:
    """The folder of Thrust's and libcu++'s headers, and their version.

    They come with pip's nvidia-cuda-cccl and with a CUDA toolkit; versions before OLDEST_CCCL are
    ignored.
    """
    folders = in_wheels("*/include/cccl")
    if home := cuda_home():
        folders.append(home / "include/cccl")
    for folder in folders:
        with contextlib.suppress(OSError):
            text = (folder / "cuda/std/__cccl/version.h").read_text()
            version = re.search(r"#\s*define\s+CCCL_VERSION\s+(\d+)", text)
            if version and int(version[1]) >= OLDEST_CCCL:
                return folder, int(version[1])
    return None


def compiler_versions(target: str, notes: Path) -> str:
    """The version texts of the compilers for a target.

    Asking nvcc takes 35 ms, so the answers are kept in the folder `notes`.

    Raises:
        MissingTool: there is no such compiler; the message says how to get it.
    """
    home = cuda_home() if target == "cuda" else None
    if target == "cuda" and home is None:
        raise MissingTool(
            "no nvcc: set CUDA_HOME, put nvcc on PATH, or pip install nvidia-cuda-nvcc"
            " (README.md names the wheels that go with it)"
        )
    versions = [_version(found_cxx(), notes)]
    clang = re.search(_CLANG, versions[0])
    if clang and not clang["apple"] and int(clang["release"]) < OLDEST_CLANG:
        raise MissingTool(
            f"{cxx()!r} is clang {clang['release']}, and kernels need clang {OLDEST_CLANG} or"
            f" later, or g++: set CXX to one of them, as in CXX=clang++-{OLDEST_CLANG} or CXX=g++"
        )
    if home:
        versions.append(_version([f"{home}/bin/nvcc"], notes))
    return "\n".join(versions)


_CLANG = r"(?P<apple>Apple )?clang version (?P<release>\d+)"


def is_clang(versions: str) -> bool:
    """Whether the C++ compiler is clang, from what `compiler_versions` returned."""
    return bool(re.search(_CLANG, versions))


def nvccs_host_is_clang() -> bool:
    """Whether nvcc is told to use clang in place of g++: by CC, through torch, or by itself."""
    host = os.environ.get("CC") or os.environ.get("NVCC_CCBIN") or ""
    return "clang" in Path(host).name


def _version(command: list[str], notes: Path) -> str:
    path = Path(command[-1]).resolve()
    stat = path.stat()
    version_key = f"{' '.join([*command[:-1], str(path)])} {stat.st_size} {stat.st_mtime_ns}"
    note = notes / digest_of(version_key)[:16]
    if known := read_note(note):
        return known["said"]
    try:
        version = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, check=True, timeout=PATIENCE
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingTool(f"{command[-1]} does not work: {error}") from None
    with contextlib.suppress(OSError):  # a full disk; the builds may be cached already
        write_note(note, {"said": version})
    return version


@cache
def compilers_headers(*command: str) -> tuple[Path, ...]:
    """The folders in which a C++ compiler looks for headers by default.

    Most lie below /usr, but a compiler may be installed anywhere.
    """
    named_by_users = {"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"}
    env = {k: v for k, v in os.environ.items() if k not in named_by_users} | {"LC_ALL": "C"}
    ask = [*command, "-E", "-v", "-x", "c++", os.devnull]
    try:
        output = subprocess.run(
            ask, capture_output=True, text=True, timeout=PATIENCE, env=env
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return ()
    _, _, rest = output.partition("search starts here:\n#include <...> search starts here:\n")
    lines = rest.partition("End of search list")[0].splitlines()
    names = (line.removesuffix(" (framework directory)").strip() for line in lines)
    return tuple(Path(os.path.normpath(name)) for name in names)


def nvcc_release(versions: str) -> tuple[int, int]:
    """nvcc's release from its version text, such as (13, 0)."""
    match = re.search(r"release (\d+)\.(\d+)", versions)
    return (int(match[1]), int(match[2])) if match else (0, 0)


@cache
def cpu() -> str:
    """This CPU's model and flags, which decide what -march=native means."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as info:
        first = info.read(16384).split("\n\n")[0]
        return "\n".join(
            line
            for line in first.splitlines()
            if line.startswith(("model", "flags", "Features", "CPU "))
        )
    return f"{platform.machine()} {platform.processor()}"


NAMED_ARCHITECTURES = {
    "Volta": "7.0+PTX",
    "Turing": "7.5+PTX",
    "Ampere": "8.0;8.6+PTX",
    "Ada": "8.9+PTX",
    "Hopper": "9.0+PTX",
    "Blackwell": "10.0;12.0+PTX",
}


def architectures() -> list[str]:
    """The GPU architectures to build for, as in ["8.0", "9.0+PTX"].

    For the machine's own GPUs, with the instructions that only these have, such as wgmma of compute
    capability 9.0: "9.0a".
    """
    wanted = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
    if wanted and wanted != "native":
        for name, numbers in NAMED_ARCHITECTURES.items():
            wanted = re.sub(name, numbers, wanted, flags=re.IGNORECASE)
        archs = wanted.replace(";", " ").replace(",", " ").split()
        for arch in archs:
            if not re.fullmatch(r"\d+\.\d[af]?(\+PTX)?", arch):
                raise ValueError(
                    f"TORCH_CUDA_ARCH_LIST names {arch!r}; wanted numbers such as 9.0 or 8.0+PTX,"
                    f" or names: {', '.join(NAMED_ARCHITECTURES)}"
                )
        return archs
    if torch.cuda.is_available():
        present = map(torch.cuda.get_device_capability, range(torch.cuda.device_count()))
        return sorted({f"{major}.{minor}{'a' * (major >= 9)}" for major, minor in present})
    return ["8.0", "9.0a"]


def simulated() -> Architecture | None:
    """The architecture that the simulator builds for; None: 9.0, with the instructions of all.

    It is the one in TORCH_CUDA_ARCH_LIST. Among several, it is the highest with "a" or "f", or
    else, if none is below 10.0, the highest.
    """
    if os.environ.get("TORCH_CUDA_ARCH_LIST", "native") in ("", "native"):
        return None
    named = [Architecture.of(arch) for arch in architectures()]
    all_new = min(named).number >= 1000
    chosen = max([arch for arch in named if arch.suffix or all_new], default=None)
    return chosen if chosen and chosen.number >= 1000 else None


def gencode(arch: str) -> list[str]:
    number = arch.removesuffix("+PTX").replace(".", "")
    kinds = ["sm", "compute"] if arch.endswith("+PTX") else ["sm"]
    return [f"-gencode=arch=compute_{number},code={kind}_{number}" for kind in kinds]
