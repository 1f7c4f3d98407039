"""Folders of one's own: `new` makes them from the originals, `update` renews them.

A folder has a MARKER: the digest of every file as it was copied. A file that still has it is the
originals' and is renewed; one that has another is the user's and stays. All that is new is written
to STAGE first and moved to its place in the end, so that nobody finds half a file; an update that
was killed while it moved is completed by the next one.
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
NEW = ".new"  # behind the name of a file that the user's own keeps from its place


class Refused(Exception):
    """What was asked for would harm something, or cannot be; it says what and why."""


def release() -> str:
    """The version of the project."""
    try:
        return version("kernel-playground")
    except PackageNotFoundError:  # on the path, without an install
        return "unknown"


@dataclass
class Marker:
    """What is known of a folder's files, by their names: digests as of the last copy.

    beside: of those that were laid beside an edited one.
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
    """What is done with a folder: its files by the originals that go there, and what to tell.

    Attributes:
        write: an original for each place.
        marker: what the marker says in the end.
        edited: by the user, and newer among the originals: those are laid beside them.
        deleted: by the user; they stay away.
        taken: files of the user's own where the originals have one now, which is laid beside.
        gone: of which the originals have none any more.
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
            with contextlib.suppress(OSError):  # it was stopped while files moved there
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
    """What is to be done; nothing is done yet."""
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
    """A name that no file has, but one that was laid there and that nobody has edited since."""
    number, found = 1, name
    while digest(folder / found) not in (None, newest, before.beside.get(found)):
        number += 1
        found = f"{name}{number}"
    return found


def digest(path: Path) -> str | None:
    """Of a file's bytes; None where there is none. A link or a folder is none of the originals'."""
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
    shutil.rmtree(stage, ignore_errors=True)  # of one that was killed
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
    """A file of the user's, whatever the permissions of the original."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder, which ends with the process."""
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
            pass  # a file system without locks
        yield
    finally:
        os.close(place)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait for the few milliseconds that files take to move."""
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
