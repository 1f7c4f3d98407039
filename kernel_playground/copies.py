"""A user's playground folders: `new` copies them from the originals, `update` renews them.

A folder's MARKER holds the digest of every file as it was copied. `update` renews a file that still
has this digest; a file with another digest was edited by the user and stays. New files are first
written to STAGE and then moved, so that nobody finds half a file. If an update is killed while it
moves files, the next one completes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernel_playground.contents import FOLDER, files
from playground_folder.place import MARKER, ORIGINALS

STAGE = ".kernel-playground.update"  # in the folder
NEW = ".new"  # suffix of an original whose place a file of the user's has


class Refused(Exception):
    """The request is impossible or would do harm; the message says why."""


def release() -> str:
    """The version of the project."""
    try:
        return version("kernel-playground")
    except PackageNotFoundError:  # imported from the path, not installed
        return "unknown"


@dataclass
class Marker:
    """The digests of a folder's files as of the last copy, by their names.

    beside: the digests of the files that were laid beside an edited one.
    """

    version: str = field(default_factory=release)
    files: dict[str, str] = field(default_factory=dict)
    beside: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Marker:
        """Raises Refused where there is none."""
        try:
            return cls(**json.loads((folder / MARKER).read_text()))
        except FileNotFoundError:
            raise Refused(
                f"{folder} has no {MARKER}: kernel-playground new makes folders that have one"
            ) from None
        except (ValueError, TypeError):
            raise Refused(
                f"{folder / MARKER} cannot be read: put it back as it was, or make another folder"
            ) from None


@dataclass
class Change:
    """The changes to a folder: the originals to write, by their places, and what to report.

    Attributes:
        write: an original for each place.
        marker: the marker's contents after the change.
        edited: files that the user edited and the originals renewed: those are laid beside them.
        deleted: files that the user deleted; they are not copied again.
        taken: the user's own files where the originals now have one; that is laid beside.
        gone: files that the originals no longer have.
    """

    write: dict[str, str] = field(default_factory=dict)
    marker: Marker = field(default_factory=Marker)
    renewed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    edited: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


def new(folder: Path, originals: Path = ORIGINALS) -> Change:
    """Copy the originals into a folder that has none yet; it may have files of its own.

    Raises Refused where a copy would go to one of those, or the folder is a playground already.
    """
    if (folder / MARKER).exists():
        raise Refused(f"{folder} is a playground already; kernel-playground update renews it")
    if folder.resolve() == originals.resolve():
        raise Refused(f"{folder} is the clone itself: edit it there, or name another folder")
    if made := not folder.exists():
        folder.mkdir(parents=True)
    try:
        with _alone(folder):
            change = plan(folder, Marker(), originals)
            if change.taken:
                raise Refused(
                    f"{folder} has files of its own where copies would go, and nothing was copied:"
                    f" {listed(change.taken)}. Name a folder without them"
                )
            _carry_out(folder, change, originals)
    except BaseException:
        if made:
            with contextlib.suppress(OSError):  # an update was stopped while it moved files there
                folder.rmdir()
        raise
    return change


def update(folder: Path, originals: Path = ORIGINALS) -> Change:
    """Renew what the user has not edited. Raises Refused where the folder is no playground."""
    with _alone(folder):
        change = plan(folder, Marker.of(folder), originals)
        _carry_out(folder, change, originals)
    return change


def plan(folder: Path, before: Marker, originals: Path) -> Change:
    """Plans the changes; changes nothing yet."""
    change = Change()
    for name in files(FOLDER, originals):
        newest, here = digest(originals / name), digest(folder / name)
        known = before.files.get(name)
        change.marker.files[name] = newest
        if here == newest:
            continue
        if here is None and known is not None:
            change.deleted.append(name)
        elif here in (None, known):
            (change.added if here is None else change.renewed).append(name)
            change.write[name] = name
        elif newest != known:
            (change.taken if known is None else change.edited).append(name)
            beside = _free(folder, name + NEW, newest, before)
            change.write[beside] = name
            change.marker.beside[beside] = newest
    change.marker.beside |= {
        name: known
        for name, known in before.beside.items()
        if name not in change.marker.beside and digest(folder / name) == known
    }
    gone = (name for name in before.files if name not in change.marker.files)
    change.gone = [name for name in gone if digest(folder / name)]
    return change


def _free(folder: Path, name: str, newest: str, before: Marker) -> str:
    """A name that no file has, or only a file that was laid there and not edited since."""
    number, found = 1, name
    while digest(folder / found) not in (None, newest, before.beside.get(found)):
        number += 1
        found = f"{name}{number}"
    return found


def digest(path: Path) -> str | None:
    """The digest of a file's bytes; "a link" or "a folder" for those; None if there is nothing."""
    try:
        if path.is_symlink():
            return "a link"
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except IsADirectoryError:
        return "a folder"
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise Refused(f"{path} is wanted, and a part of that path is a file, no folder") from None


def _carry_out(folder: Path, change: Change, originals: Path) -> None:
    """Write everything to STAGE, then move it, the marker last."""
    stage = folder / STAGE
    shutil.rmtree(stage, ignore_errors=True)  # left by an update that was killed
    try:
        for place, name in change.write.items():
            _write(stage / place, (originals / name).read_bytes())
        marker = json.dumps(asdict(change.marker), indent=1)
        _write(stage / MARKER, f"{marker}\n".encode())
        with _uninterrupted():
            for place in (*change.write, MARKER):
                (folder / place).parent.mkdir(parents=True, exist_ok=True)
                (stage / place).replace(folder / place)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _write(path: Path, data: bytes) -> None:
    """Write a file that the user may edit, whatever the permissions of the original."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder; it ends with the process at the latest."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        raise Refused(f"there is no folder {folder}") from None
    except NotADirectoryError:
        raise Refused(f"{folder} is no folder") from None
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"another process is just changing {folder}") from None
        except OSError:
            pass  # the file system has no locks
        yield
    finally:
        os.close(place)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C for the few milliseconds that moving the files takes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    kept = {each: signal.signal(each, lambda number, _: came.append(number)) for each in numbers}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


def listed(names: list[str], most: int = 5) -> str:
    """The first of many names."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
