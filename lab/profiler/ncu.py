"""Finds and runs Nsight Compute's command, ncu, and reads its reports."""

from __future__ import annotations

import contextlib
import csv
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import jitload

HOMEPAGE = "https://developer.nvidia.com/nsight-compute"
PERMISSION = "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
GRACE = 3.0  # seconds that an interrupted ncu has to end what it runs

GET = (
    "no ncu, NVIDIA's Nsight Compute: it comes with the CUDA toolkit (put it on PATH, or set"
    " CUDA_HOME), with conda (conda install -c nvidia nsight-compute), with the apt and dnf"
    f" repositories of CUDA (nsight-compute-2025.3.1), and from {HOMEPAGE}. No wheel of pip's has"
    " it. lab.check needs none: it counts on the CPU what each line asks of the memories"
)
NOT_PERMITTED = (
    "the driver lets only administrators read the GPU's counters (ERR_NVGPUCTRPERM). As root run\n"
    "    echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0'"
    " > /etc/modprobe.d/nvidia-counters.conf\n"
    "and restart the machine, or run Python as root. In a container root is not enough: start it"
    " with the capability SYS_ADMIN (docker run --cap-add=SYS_ADMIN; in Kubernetes"
    ' securityContext.capabilities.add: ["SYS_ADMIN"]). A hosted notebook mostly permits neither.\n'
    f"{PERMISSION} says more; lab.check needs no permission"
)

# Units to which ncu scales values although it is asked for base units, and their sizes.
SCALES = {"us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
SCALES |= {"Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}

# What ncu says when it fails, and what that means. The first that matches is reported.
ERRORS = [
    (r"ERR_NVGPUCTRPERM", NOT_PERMITTED),
    (
        r"driver resource was unavailable",
        "something else reads the GPU's counters at the moment, such as DCGM or another ncu: end"
        " it, or pause DCGM with `dcgmi profile --pause`",
    ),
    (
        r"[Pp]rofiling is not supported on (?:this )?device",
        "this ncu does not know this GPU: `ncu --list-chips` names those it does. A newer GPU"
        f" needs a newer ncu, one older than Volta an older ncu ({HOMEPAGE})",
    ),
    (
        r"[Dd]river (?:is not compatible|version)|Cuda driver is not compatible",
        "this ncu and the NVIDIA driver do not fit together: update the driver, or take the ncu of"
        " the CUDA release that `nvidia-smi` shows",
    ),
    (
        r"lock file",
        "the file by which several ncu take turns belongs to another user: set TMPDIR to a folder"
        " of your own",
    ),
    (
        r"No space left on device",
        "the disk of the folder for temporary files is full: set TMPDIR to another one",
    ),
]


class NcuError(RuntimeError):
    """ncu ran and failed; the message says why and what to do.

    output: what ncu and the process under it printed.
    """

    def __init__(self, message: str, output: str):
        super().__init__(message)
        self.output = output


@dataclass(frozen=True)
class Run:
    """How a process under ncu ended.

    status: ncu's exit status, usually the process's; None if it was ended at the limit.
    """

    status: int | None
    output: str

    @property
    def own(self) -> list[str]:
        """The lines that ncu printed itself."""
        return [line for line in self.output.splitlines() if re.match(r"==\w+==", line)]

    @property
    def of_process(self) -> str:
        """What the process printed."""
        lines = self.output.splitlines()
        return "\n".join(line for line in lines if not re.match(r"==\w+==", line)).strip()

    def complain(self) -> None:
        """Raise NcuError if ncu could not do its work."""
        said = "\n".join(line for line in self.own if "==ERROR==" in line)
        for pattern, meaning in ERRORS:
            if re.search(pattern, said):
                raise NcuError(meaning, self.output)
        said = re.sub(r"(?m)^==ERROR== .*(?:application returned an error|ncu-rep).*\n?", "", said)
        if said.strip():
            raise NcuError(f"ncu failed:\n{said.strip()}", self.output)


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, as ncu reports it.

    symbol: the kernel's mangled name.
    metrics: the values of all metrics that were collected, by ncu's names.
    units: of those metrics.
    instructions: the rows of ncu's source page, one for each instruction in its order.
    """

    symbol: str
    metrics: Mapping[str, str]
    instructions: Sequence[Mapping[str, str]] = ()
    units: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The kernel's C++ name, demangled."""
        return jitload.plain_names([self.symbol])[self.symbol]

    @property
    def architecture(self) -> str:
        """As in "sm_90"."""
        return f"sm_{self.metrics.get('CC', '').replace('.', '')}"

    def number(self, *names: str) -> float | None:
        """The first of these metrics that was collected, in nanoseconds, bytes and the like."""
        for name in names:
            value = number(self.metrics.get(name, ""))
            if value is not None:
                unit = self.units.get(name, "").partition("/")[0]
                return value * SCALES.get(unit, 1)
        return None


def find() -> Path:
    """ncu: on PATH, in the CUDA toolkit, or where its installer puts it.

    Raises:
        MissingTool: it is nowhere; the message says how to get it.
    """
    if found := shutil.which("ncu"):
        return Path(found)
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    candidates = [Path(home, "bin/ncu") for home in (*homes, "/usr/local/cuda")]
    candidates += sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    for path in candidates:
        if os.access(path, os.X_OK):
            return path
    raise jitload.MissingTool(GET)


def metrics() -> set[str]:
    """The base names of the metrics that this ncu has for this GPU."""
    said = subprocess.run([str(find()), "--query-metrics"], capture_output=True, text=True).stdout
    return {line.split()[0] for line in said.splitlines() if line.strip()}


def run(
    command: Sequence[str],
    report: Path,
    options: Sequence[str] = (),
    *,
    env: Mapping[str, str] | None = None,
    watch: Callable[[str], bool] = lambda output: False,
) -> Run:
    """Run a command under ncu, which writes `report` (a file that ends in .ncu-rep).

    watch: called about ten times a second with all that was printed so far; the run ends when it
        returns True.

    Clocks are left as they are. Whatever ends this call early ends ncu and the command too.
    """
    options = ["--clock-control", "none", *options, "--force-overwrite", "--export", str(report)]
    process = subprocess.Popen(
        [str(find()), *options, *command],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # one process group, which is ended together
    )
    output, status = b"", None
    try:
        with process.stdout, selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            is_open = True
            while is_open or process.poll() is None:
                if is_open and ready.select(0.1):
                    chunk = os.read(process.stdout.fileno(), 65536)
                    output, is_open = output + chunk, bool(chunk)
                    if not chunk:
                        ready.unregister(process.stdout)
                elif not is_open:
                    time.sleep(0.02)
                if process.poll() is not None and not ready.get_map():
                    break
                if watch(output.decode(errors="replace")):
                    return Run(None, output.decode(errors="replace"))
        status = process.wait()
    except KeyboardInterrupt:
        _signal(process, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        raise
    finally:
        _signal(process, signal.SIGKILL)
        process.wait()
    return Run(status, output.decode(errors="replace"))


def _signal(process: subprocess.Popen, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def profiled(output: str) -> list[str]:
    """The kernels that ncu has begun to profile, from what it printed so far."""
    return re.findall(r'==PROF== Profiling "([^"]*)"', output)


# ---- reports


def launches(report: Path, *, by_line: bool = True) -> list[Launch]:
    """The launches in a report; ncu writes no report if it saw no launch.

    by_line: with the rows of the source page.

    Raises:
        NcuError: ncu cannot read the report.
    """
    if not report.exists():
        return []
    found = parsed_raw(_page(report, "raw"))
    if not by_line or not found:
        return found
    sources = parsed_source(_page(report, "source", "--print-source", "sass"))
    if len(sources) != len(found):  # what is not understood is left out
        return found
    return [
        replace(launch, instructions=instructions)
        for launch, (_, instructions) in zip(found, sources, strict=True)
    ]


def _page(report: Path, page: str, *options: str) -> str:
    command = [str(find()), "--import", str(report), "--page", page, "--csv"]
    command += ["--print-units", "base", "--print-kernel-base", "mangled", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise NcuError(f"ncu cannot read its report {report.name}:\n{said[-2000:]}", said)
    return done.stdout


def parsed_raw(text: str) -> list[Launch]:
    """The raw page: a head, a row of units, and a row for each launch."""
    start = text.find('"ID"')
    if start < 0:
        return []
    rows = list(csv.DictReader(text[start:].splitlines()))
    units = next((row for row in rows if not row["ID"]), {})
    return [Launch(row["Kernel Name"], row, units=units) for row in rows if row["ID"]]


def parsed_source(text: str) -> list[tuple[str, list[dict[str, str]]]]:
    """The source page, which has a table for each launch: the kernel's name, and its rows."""
    found: list[tuple[str, list[dict[str, str]]]] = []
    head: list[str] = []
    for row in csv.reader(text.splitlines()):
        if row[:1] == ["Kernel Name"]:
            found.append((row[1] if len(row) > 1 else "", []))
        elif "Address" in row and "Source" in row:
            head = row
        elif head and found and len(row) == len(head):
            found[-1][1].append(dict(_first_of_each(head, row)))
    return found


def _first_of_each(head: list[str], row: list[str]) -> Iterator[tuple[str, str]]:
    """The row by its titles; if a title occurs twice, the first counts."""
    yield from reversed(list(zip(head, row, strict=True)))


def number(text: str) -> float | None:
    """The number in "1,056" or "12.5"; None if a metric has no value."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
