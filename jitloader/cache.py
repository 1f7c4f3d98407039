"""The cache of builds: a folder of the user, shared folders below it, locks, and uses of builds.

    NAME_DIGEST/       one build: library, manifest, sources; appears whole or not at all
    building/          what is being compiled; leftovers of killed processes are removed
    objects/           the last object of each source of a kernel, for edits of its other sources
    stub_libraries/    stubs that kernels are linked with in place of PyTorch's libraries
    precompiled/       precompiled headers of g++: the simulator's, and PyTorch's (600 MB)
    locks/             one file for each build in progress; its flock ends with the process
    in_use/            one file per process, flocked while it lives: the builds it has open
    headers/ compilers/ logs/    headers from depfiles, compilers' versions and output
    readings/          which build the files of a recipe had when they were last read
    called/            the functions that were called of each kernel's newest build in parts

`JITLOAD_CACHE` may name several folders. The first is the user's own. The others are only read, so
that a class can share its teacher's builds. Last comes the folder of the Python environment, into
which set-up built the simulator's runtime. A user's own folder is refused if others can write to
it, so that their code is not loaded by accident.

A file system without locks (some network file systems) has two effects: several processes may
compile the same kernel at once, and the result of one is kept; and `prune` may remove a build that
another process has open, which goes on running.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import math
import os
import shutil
import stat
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from toolchain.notes import close_to_others, discard, made

MANIFEST = "build.json"  # a folder without it is no build
ENVIRONMENT = Path(sys.prefix, "share", "jitload")  # as trusted as the packages beside it
UNAWAITED = "-whole"  # suffix of the locks of builds that nothing waits for
_temporary: dict[Path, Path] = {}  # by own folder that is not writable: what replaces it
_in_use: dict[Path, IO[str]] = {}  # by own folder: this process's file in its in_use/


@dataclass(frozen=True)
class Cache:
    """The folders of one setting of JITLOAD_CACHE.

    Attributes:
        own: builds are written here; other users cannot write to it.
        shared: searched after it.
    """

    own: Path
    shared: tuple[Path, ...] = ()

    @classmethod
    def here(cls) -> Cache:
        """The folders that the environment names, created when first needed.

        Raises:
            PermissionError: other users can put code into the own folder.
        """
        named = _named()
        own, *shared = (_absolute(name) for name in named or [_default()])
        try:
            for missing in reversed([parent for parent in own.parents if not parent.exists()]):
                missing.mkdir(mode=0o755, exist_ok=True)
            own.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            why = error.strerror
        else:
            _refuse_if_open_to_others(own)
            if os.access(own, os.W_OK | os.X_OK, effective_ids=_EFFECTIVE):
                return cls(own, tuple(shared))
            why = "it is read-only"
        return cls(_private_temporary(own, why), (own, *shared))

    @property
    def is_temporary(self) -> bool:
        """Whether the own folder replaces the first of the shared ones, which is read-only."""
        return self.own in _temporary.values()

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.own, *self.shared, ENVIRONMENT)

    # ---- one builder at a time

    @contextlib.contextmanager
    def lock(self, name: str, wait: bool = True) -> Iterator[bool]:
        """The lock to build `name`, among all processes; the system frees it if a process dies.

        Yields whether it was acquired. It was not if another process has it and `wait` is False, or
        if the file system has no locks.
        """
        path = self.own / "locks" / f"{name}.lock"
        while True:
            try:
                made(path.parent)
                file = os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w")
            except OSError:
                yield False
                return
            with file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                except OSError:
                    yield False
                    return
                if not _is_still(path, file):  # its last owner removed it
                    continue
                try:
                    yield True
                finally:
                    path.unlink(missing_ok=True)
                    fcntl.flock(file, fcntl.LOCK_UN)  # a forked process may hold the file open
                return

    def is_building(self) -> bool:
        """Whether a process that waits for a build is building into this cache.

        The locks of builds that nothing waits for (see `completed`) end in UNAWAITED.
        """
        for path in self.own.glob("locks/*.lock"):
            if not path.stem.endswith(UNAWAITED):
                with self.lock(path.stem, wait=False) as free:
                    if not free:
                        return True
        return False

    @contextlib.contextmanager
    def workplace(self, name: str, alone: bool) -> Iterator[Path]:
        """An empty folder to build `name` in, removed afterwards; alone: what `lock` yielded."""
        building = made(self.own / "building")
        self.sweep(mine=name if alone else "")
        work = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=building))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def sweep(self, mine: str = "") -> None:
        """Remove what killed processes left in building/: folders whose locks no process holds.

        mine: a name whose lock the caller holds.
        """
        for abandoned in self.own.glob("building/*"):
            name = abandoned.name.rpartition(".")[0]
            held = contextlib.nullcontext(True) if name == mine else self.lock(name, wait=False)
            with held as free:
                if free:
                    discard(abandoned)

    def place(self, result: Path, name: str) -> None:
        """Move a finished build into the cache atomically, also in place of a damaged one."""
        for path in (result, *result.rglob("*")):
            close_to_others(path)
        self.use(self.own / name)  # before it is there: another process may `prune`
        self.remove(self.own / name)
        try:
            result.replace(self.own / name)
        except OSError:
            if not (self.own / name / MANIFEST).is_file():
                raise
            # Without locks another process may have built the same first.

    def remove(self, folder: Path) -> None:
        """Move a build, or what is in its place, out of the cache; then delete its files."""
        if not os.path.lexists(folder):
            return
        building = made(self.own / "building")
        gone = tempfile.mkdtemp(prefix=f"{folder.name}.", dir=building)
        with contextlib.suppress(FileNotFoundError):  # another process moved it first
            folder.replace(Path(gone, folder.name))
        shutil.rmtree(gone, ignore_errors=True)

    def trusts(self, folder: Path) -> bool:
        """Whether no other user can have put code into a build. Shared folders are trusted.

        An own folder may be older than this check, and hold files made with a umask of 000.
        """
        own = {self.own, *(own for own, temporary in _temporary.items() if temporary == self.own)}
        if folder.parent not in own:
            return True
        with contextlib.suppress(OSError):
            return all(_is_private(part.stat()) for part in (folder, *folder.iterdir()))
        return False

    # ---- uses of builds

    def use(self, folder: Path) -> None:
        """Note that this process, and those it forks, have the build in `folder` open."""
        if folder.parent != self.own:
            return
        with contextlib.suppress(OSError):
            if self.own not in _in_use:
                _in_use[self.own] = self._new_note()
            _in_use[self.own].write(f"{folder.name}\n")
            _in_use[self.own].flush()

    def _new_note(self) -> IO[str]:
        notes = made(self.own / "in_use")
        self.used()  # sweeps
        while True:
            descriptor, path = tempfile.mkstemp(prefix=f"{os.getpid()}.", dir=notes)
            file = os.fdopen(descriptor, "a")
            try:
                fcntl.flock(file, fcntl.LOCK_SH)
            except OSError:
                Path(path).unlink()
                raise
            if _is_still(Path(path), file):
                return file

    def used(self) -> set[str]:
        """The names of all builds that a living process has open."""
        names: set[str] = set()
        for note in self.own.glob("in_use/*"):
            try:
                with note.open("r+", errors="replace") as file:
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        note.unlink()  # its process has ended
                    except OSError:
                        names.update(file.read().split())
            except IsADirectoryError:
                discard(note)
            except FileNotFoundError:
                continue
        return names

    # ---- bounds

    def prune(self, gigabytes: float, days: float) -> tuple[int, int]:
        """Remove what was unused for `days`, then the longest unused until `gigabytes` are left.

        What a living process builds or has open stays; what is open counts as kept. Returns the
        bytes kept and freed.
        """
        self.sweep()
        now, kept, freed = time.time(), 0, 0
        patterns = ("*_*/*.json", "objects/*/*.json", "precompiled/*/*.json")
        manifests = [path for pattern in patterns for path in self.own.glob(pattern)]
        last = {path.parent: _changed(path) for path in manifests}
        live = self.used()  # after the list, because builds are noted before placed
        for folder in sorted(last, key=lambda f: (f.name in live, last[f]), reverse=True):
            size = sum(map(_size, folder.rglob("*")))
            too_old, too_much = now - last[folder] > days * 86400, kept + size > gigabytes * 1e9
            if folder.name not in live and (too_old or too_much):
                self.remove(folder)
                freed += size
            else:
                kept += size
        # Without locks, a build counts as abandoned after a day.
        for leftover in self.own.glob("building/*"):
            if now - _changed(leftover) > max(days, 1) * 86400:
                discard(leftover)
        for pattern in ("logs/*", "readings/*"):
            for left in self.own.glob(pattern):
                if now - _changed(left) > days * 86400:
                    discard(left)
        return kept, freed


_EFFECTIVE = os.access in os.supports_effective_ids


def _named() -> list[str]:
    """The folders of JITLOAD_CACHE.

    A relative one starts at the present working directory. It is made absolute in the environment,
    so that it stays the same later and in processes that this one starts.
    """
    names = [name for name in os.environ.get("JITLOAD_CACHE", "").split(os.pathsep) if name]
    if not all(name.startswith(("/", "~")) for name in names):
        names = [name if name.startswith("~") else str(_absolute(name)) for name in names]
        os.environ["JITLOAD_CACHE"] = os.pathsep.join(names)
    return names


def _default() -> str:
    if sys.platform == "darwin":
        return "~/Library/Caches/jitload"
    home = os.environ.get("XDG_CACHE_HOME", "")
    return f"{home if home.startswith('/') else '~/.cache'}/jitload"  # as XDG's specification says


def _absolute(name: str) -> Path:
    with contextlib.suppress(RuntimeError):
        return Path(name).expanduser().absolute()
    return Path(os.devnull, name)  # the user has no home folder: neither can this be made


def _refuse_if_open_to_others(folder: Path) -> None:
    status = folder.stat()
    if _is_private(status):
        return
    if status.st_uid != os.geteuid():
        what, remedy = f"belongs to another user (number {status.st_uid})", ""
    else:
        what = f"can be written to by other users (mode {status.st_mode & 0o777:o})"
        remedy = f"`chmod go-w {folder}`, or "
    raise PermissionError(
        f"the cache folder {folder} {what}, and what lies in it would run as you: {remedy}set"
        f" JITLOAD_CACHE to a folder of your own. To only read builds from there, name it second,"
        f" as in JITLOAD_CACHE=~/.cache/jitload{os.pathsep}{folder}"
    )


def _is_private(status: os.stat_result) -> bool:
    """Whether it is this user's, and nobody else can write to it."""
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _changed(path: Path) -> float:
    """The time of its last change; infinity if another process has just removed it."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return math.inf


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        if stat.S_ISREG((status := path.stat()).st_mode):
            return status.st_size
    return 0


def _private_temporary(own: Path, why: str) -> Path:
    if own not in _temporary or not _temporary[own].is_dir():
        _temporary[own] = Path(tempfile.mkdtemp(prefix="jitload-"))
        _remove_at_exit(_temporary[own])
        warnings.warn(
            f"the cache folder {own} cannot be used ({why}): builds go to {_temporary[own]} until"
            " this process ends. Set JITLOAD_CACHE to a folder that you can write to",
            RuntimeWarning,
            stacklevel=2,
        )
    return _temporary[own]


def _remove_at_exit(folder: Path) -> None:
    made_by = os.getpid()

    def remove() -> None:
        if os.getpid() == made_by:  # not in a forked process
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)


def _is_still(path: Path, file: IO[str]) -> bool:
    """Whether an open file is still the one at this path."""
    with contextlib.suppress(OSError):
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    return False


with contextlib.suppress(OSError):  # the working directory was removed
    _named()  # relative paths start where this process did


_locks: weakref.WeakSet = weakref.WeakSet()


def free_in_child(lock: threading.Lock | threading.RLock) -> threading.Lock | threading.RLock:
    """A lock for threads that is free in forked processes, which have only one thread."""
    _locks.add(lock)
    return lock


def _free_all() -> None:
    for lock in _locks:
        lock._at_fork_reinit()


os.register_at_fork(after_in_child=_free_all)
