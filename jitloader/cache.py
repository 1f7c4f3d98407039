"""Where builds are kept: a folder of the user's own, layers below it, locks, and who uses what.

    NAME_DIGEST/       one build: library, manifest, sources; appears whole or not at all
    building/          what is being compiled; whatever a killed process left is swept
    objects/           the last object of each source of a kernel, which an edit of another leaves
    stub_libraries/    what kernels are linked with in the place of PyTorch's libraries
    precompiled/       headers as g++ has parsed them: the simulator's, and PyTorch's, of 600 MB
    locks/             one file for each build under way; its flock ends with the process
    in_use/            one file a process, flocked while it lives, naming the builds it has open
    headers/ compilers/ logs/    headers from depfiles, compilers' versions and output
    readings/          which build the files of a recipe had when they were last read
    called/            what was called of the newest build in parts of each kernel

`JITLOAD_CACHE` may name several folders. The first is the user's own. The others are only looked
into: a class shares the builds of its teacher. Last comes the folder of the Python environment, in
which set-up has built the simulator's runtime. Nobody else's code is loaded by accident: an own
folder that others could write to is refused.

On a file system without locks (some network file systems) everything works but for two things: one
kernel may be compiled by several processes at once, of which one wins; and `prune` may remove a
build that another process has open, which goes on running.
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

MANIFEST = "build.json"  # without it a folder holds no build
ENVIRONMENT = Path(sys.prefix, "share", "jitload")  # as trusted as the packages beside it
UNAWAITED = "-whole"  # ends the names of locks of builds for which nobody waits
_temporary: dict[Path, Path] = {}  # what stands in for an own folder that cannot be written to
_in_use: dict[Path, IO[str]] = {}  # by own folder: this process's file in in_use/


@dataclass(frozen=True)
class Cache:
    """The folders of one setting of JITLOAD_CACHE.

    Attributes:
        own: written to; nobody else can.
        shared: looked into after it.
    """

    own: Path
    shared: tuple[Path, ...] = ()

    @classmethod
    def here(cls) -> Cache:
        """What the environment names, made when first needed.

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
        """Whether the own folder stands in for the first of the shared ones, which is read-only."""
        return self.own in _temporary.values()

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.own, *self.shared, ENVIRONMENT)

    # ---- one builder at a time

    @contextlib.contextmanager
    def lock(self, name: str, wait: bool = True) -> Iterator[bool]:
        """The right to build `name`, over all processes; the system takes it from one that dies.

        Yields whether it was got: not without `wait` where another has it, and not where there
        are no locks.
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
                if not _is_still(path, file):  # its last owner has removed it
                    continue
                try:
                    yield True
                finally:
                    path.unlink(missing_ok=True)
                    fcntl.flock(file, fcntl.LOCK_UN)  # a forked process may hold the file open
                return

    def is_building(self) -> bool:
        """Whether a process builds something into it that it waits for.

        Of builds that nobody waits for, as `completed` makes them, the locks have names of a kind.
        """
        for path in self.own.glob("locks/*.lock"):
            if not path.stem.endswith(UNAWAITED):
                with self.lock(path.stem, wait=False) as free:
                    if not free:
                        return True
        return False

    @contextlib.contextmanager
    def workplace(self, name: str, alone: bool) -> Iterator[Path]:
        """An empty folder to build `name` in, removed afterwards; `alone`: what `lock` yielded."""
        building = made(self.own / "building")
        self.sweep(mine=name if alone else "")
        work = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=building))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def sweep(self, mine: str = "") -> None:
        """Remove what killed processes left in building/: nobody holds the locks of those names.

        Nobody else, that is: the caller holds that of `mine`.
        """
        for abandoned in self.own.glob("building/*"):
            name = abandoned.name.rpartition(".")[0]
            held = contextlib.nullcontext(True) if name == mine else self.lock(name, wait=False)
            with held as free:
                if free:
                    discard(abandoned)

    def place(self, result: Path, name: str) -> None:
        """Let a finished build appear, whole and at once, also where a damaged one lies."""
        for path in (result, *result.rglob("*")):
            close_to_others(path)
        self.use(self.own / name)  # already: `prune` of another process must not be faster
        self.remove(self.own / name)
        try:
            result.replace(self.own / name)
        except OSError:
            if not (self.own / name / MANIFEST).is_file():
                raise
            # Without locks another process may have built the same, and been faster.

    def remove(self, folder: Path) -> None:
        """Make a build vanish at once, or what lies in its place; its files follow."""
        if not os.path.lexists(folder):
            return
        building = made(self.own / "building")
        gone = tempfile.mkdtemp(prefix=f"{folder.name}.", dir=building)
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            folder.replace(Path(gone, folder.name))
        shutil.rmtree(gone, ignore_errors=True)

    def trusts(self, folder: Path) -> bool:
        """Whether nobody else can have put code into a build; a shared folder was named on purpose.

        An own folder may be older than we are, and hold what was made with a umask of 000.
        """
        own = {self.own, *(own for own, temporary in _temporary.items() if temporary == self.own)}
        if folder.parent not in own:
            return True
        with contextlib.suppress(OSError):
            return all(_is_private(part.stat()) for part in (folder, *folder.iterdir()))
        return False

    # ---- who uses what

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
                        note.unlink()  # its process is dead
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

        What a living process has open or builds stays; the former counts. Returns the bytes kept
        and freed.
        """
        self.sweep()
        now, kept, freed = time.time(), 0, 0
        patterns = ("*_*/*.json", "objects/*/*.json", "precompiled/*/*.json")
        manifests = [path for pattern in patterns for path in self.own.glob(pattern)]
        last = {path.parent: _changed(path) for path in manifests}
        live = self.used()  # after the list: whoever places a build has noted it before
        for folder in sorted(last, key=lambda f: (f.name in live, last[f]), reverse=True):
            size = sum(map(_size, folder.rglob("*")))
            too_old, too_much = now - last[folder] > days * 86400, kept + size > gigabytes * 1e9
            if folder.name not in live and (too_old or too_much):
                self.remove(folder)
                freed += size
            else:
                kept += size
        # Where there are no locks to tell them by, a build is given up after a day.
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

    A relative one means the working directory as it is now, and in all that follows, processes that
    this one starts included: in the environment it is made absolute.
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
    return f"{home if home.startswith('/') else '~/.cache'}/jitload"  # so says its specification


def _absolute(name: str) -> Path:
    with contextlib.suppress(RuntimeError):
        return Path(name).expanduser().absolute()
    return Path(os.devnull, name)  # the user has no home: this cannot be made either


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
    """Whether it is ours, and nobody else can write to it."""
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _changed(path: Path) -> float:
    """When; for what another process has just removed, never."""
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
        if os.getpid() == made_by:  # not a process forked from it
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)


def _is_still(path: Path, file: IO[str]) -> bool:
    """Whether an open file is the one that has this path now."""
    with contextlib.suppress(OSError):
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    return False


with contextlib.suppress(OSError):  # a working directory that was removed
    _named()  # relative to where this process began, as far as we can tell


_locks: weakref.WeakSet = weakref.WeakSet()


def free_in_child(lock: threading.Lock | threading.RLock) -> threading.Lock | threading.RLock:
    """A lock among threads that is free in processes that this one forks, which have no others."""
    _locks.add(lock)
    return lock


def _free_all() -> None:
    for lock in _locks:
        lock._at_fork_reinit()


os.register_at_fork(after_in_child=_free_all)
