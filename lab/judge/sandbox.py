"""A process with no network and no files but its own, with limits.

bubblewrap creates its namespaces, or util-linux' unshare if that is not installed. If neither is
allowed to, there are only limits on time, memory and file size, and `Sandbox.missing` says so.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import jitload

SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/lib32",
    "/bin",
    "/sbin",
    "/etc/alternatives",
    "/etc/ld.so.cache",
)
FILE = 256 << 20  # bytes in one file
# Environment variables that locate compilers and GPU libraries.
KEPT = ("PATH", "LANG", "CXX", "CUDA_HOME", "LD_LIBRARY_PATH", "TORCH_CUDA_ARCH_LIST")
KEPT += ("CUDA_VISIBLE_DEVICES",)


# Run by a shell in new namespaces: ROOT FOLDER FOLDER-TO-READ... -- WORDS. The new root contains
# only what is bound into it, and its processes have no capability to leave it.
_NEW_ROOT = """
set -e
root=$1 own=$2
shift 2
mount -t tmpfs -o size=256m none "$root"
bind() {
    if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$root${1%/*}"; touch "$root$1"; fi
    mount --bind "$1" "$root$1"
}
while [ "$1" != -- ]; do
    bind "$1"
    mount -o remount,bind,ro "$root$1"
    shift
done
shift
mkdir -p "$root/proc" "$root/tmp" "$root/dev/shm"
mount -t proc proc "$root/proc"
for device in null zero full random urandom; do bind /dev/$device; done
for device in /dev/nvidia*; do if [ -c "$device" ]; then bind "$device"; fi; done
ln -s /proc/self/fd "$root/dev/fd"
bind "$own"
chroot "$root" setpriv --no-new-privs --bounding-set=-all --inh-caps=-all \\
    sh -c 'cd "$0" && exec "$@"' "$own" "$@"
"""
_TOOLS = ("unshare", "mount", "chroot", "setpriv")
SAY = tuple(f"{tool}: " for tool in ("bwrap", *_TOOLS))  # how their error messages begin


class Limit(Exception):
    """The process exceeded a limit."""


@dataclass(frozen=True)
class Sandbox:
    """How processes are confined on this machine.

    kind: "bubblewrap", "namespaces" or "limits". missing: what cannot be enforced here.
    """

    kind: str
    missing: list[str] = field(default_factory=list)

    @classmethod
    @functools.cache
    def here(cls) -> Sandbox:
        found = {"bubblewrap": ["bwrap"], "namespaces": _TOOLS}
        found = {kind: tools for kind, tools in found.items() if all(map(shutil.which, tools))}
        for kind in found:
            if cls(kind).works():
                return cls(kind)
        why = f"{' and '.join(found)} may not be made here" if found else "there is no bubblewrap"
        lacks = ["no network", "no other files", "no other processes"]
        return cls("limits", [f"{it}: {why}" for it in lacks])

    def works(self) -> bool:
        """Whether a process can start in it."""
        with tempfile.TemporaryDirectory(prefix="sandbox-") as name:
            trial = self.command(["true"], Path(name))
            try:
                return subprocess.run(trial, capture_output=True).returncode == 0
            except OSError:
                return False

    def command(self, words: list[str], folder: Path, reads: Iterable[Path] = ()) -> list[str]:
        """A command line that runs `words` confined to its own folder.

        reads: further folders that it may read.
        """
        if self.kind == "limits":
            return words
        own = [Path(sys.prefix), Path(sys.base_prefix), Path(jitload.__file__).parent]
        own += [Path(it) for it in _paths() if Path(it).is_dir()]
        own += _compilers()
        bound = [it for it in (*map(Path, SYSTEM), *own, *reads) if it.exists()]
        readable = list(dict.fromkeys(map(str, bound)))
        if self.kind == "namespaces":
            root = folder / ".root"
            root.mkdir(exist_ok=True)
            line = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
            line += ["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
            line += ["sh", "-c", _NEW_ROOT, "sandbox", str(root), str(folder), *readable, "--"]
            return [*line, *words]
        line = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        line += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/dev/shm"]
        for device in sorted(Path("/dev").glob("nvidia*")):
            line += ["--dev-bind", str(device), str(device)]
        for path in readable:
            line += ["--ro-bind", path, path]
        line += ["--bind", str(folder), str(folder), "--chdir", str(folder)]
        return [*line, *words]

    def start(
        self, words: list[str], folder: Path, reads: Iterable[Path] = (), **environment: str
    ) -> subprocess.Popen:
        """Start `words` with pipes to its input and output; its errors go to FOLDER/errors.

        Raises RuntimeError if the sandbox program itself cannot start.
        """
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        kept |= {"PYTHONPATH": os.pathsep.join(_paths()), "HOME": str(folder)}
        kept |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"} | environment
        command = self.command(words, folder, reads)
        with (folder / "errors").open("w") as errors:
            try:
                return subprocess.Popen(
                    command,
                    env=kept,
                    cwd=folder,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                    preexec_fn=_limited,
                )
            except OSError as error:
                raise RuntimeError(f"the sandbox did not start: {command[0]}: {error}") from None


def _compilers() -> list[Path]:
    """Folders of compilers outside the system's, such as /opt/gcc for /opt/gcc/bin/g++."""
    names = (os.environ.get("CXX", "g++").split()[0], "g++", "gcc", "nvcc", "ninja", "ld")
    found = [Path(it) for it in map(shutil.which, names) if it]
    folders = {it.parent for path in found for it in (path, path.resolve())}
    system = {Path(it).parts[:2] for it in SYSTEM}
    others = (it for it in folders if it.parts[:2] not in system)
    return sorted(it.parent if it.name == "bin" else it for it in others)


def _paths() -> list[str]:
    """Python's module search path, with absolute paths."""
    return [str(Path(it).absolute()) for it in sys.path if it]


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))


def _family(process: int) -> Iterator[Path]:
    """The /proc folders of a process and all its descendants."""
    waiting = [process]
    while waiting:
        own = Path(f"/proc/{waiting.pop()}")
        with contextlib.suppress(OSError):
            for thread in (own / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
        yield own


def memory_of(process: int) -> int:
    """Bytes that a process and its descendants hold."""
    held, page = 0, os.sysconf("SC_PAGE_SIZE")
    for own in _family(process):
        with contextlib.suppress(OSError, IndexError, ValueError):
            held += int((own / "statm").read_text().split()[1]) * page
    return held


def threads_of(process: int) -> int:
    """The number of threads of a process and its descendants."""
    count = 0
    for own in _family(process):
        with contextlib.suppress(OSError):
            count += sum(1 for _ in (own / "task").iterdir())
    return count


def end(process: subprocess.Popen) -> None:
    """End the process and everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()
