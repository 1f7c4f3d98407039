"""Digests, and small files that hold what was found out once.

What cannot be read is made again: a note that was cut short, garbled, or replaced by something
else is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any


def digest_of(*parts: str | bytes) -> str:
    """One digest of several parts; where one ends and the next begins makes a difference."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def publish(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or none."""
    made(path.parent)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, 0o644)  # who may come as far as here, the cache's own folder says
            file.write(text)
        try:
            Path(temporary).replace(path)
        except IsADirectoryError:
            discard(path)
            Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


_SEAL = ',\n "sha256": "'


def write_note(path: Path, facts: dict[str, Any]) -> None:
    """Publish facts as JSON, with a digest by which `read_note` knows that they are whole."""
    text = json.dumps(facts, indent=1).removesuffix("\n}")
    publish(path, f'{text}{_SEAL}{digest_of(text)}"\n}}')


def read_note(path: Path) -> dict[str, Any] | None:
    """What `write_note` wrote; None where there is nothing, or something else."""
    try:
        text = path.read_bytes()
    except OSError:
        return None
    body, _, seal = text.rpartition(_SEAL.encode())
    if seal.decode(errors="replace") != f'{digest_of(body)}"\n}}':
        return None
    facts = json.loads(text)
    del facts["sha256"]
    return facts


def made(folder: Path) -> Path:
    """The folder, made where it is missing or where something else lies; others cannot write."""
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    except FileExistsError:
        discard(folder)
        folder.mkdir(mode=0o755, exist_ok=True)
    close_to_others(folder)
    return folder


def publish_folder(work: Path, place: Path) -> None:
    """Let a folder appear as `place`, whole and at once.

    Raises: OSError, where another process was faster.
    """
    for path in (work, *work.rglob("*")):
        close_to_others(path)
    made(place.parent)
    discard(place)  # what was damaged
    work.rename(place)


def close_to_others(path: Path) -> None:
    """Take from others the right to write, whatever the umask was when this was made."""
    mode = path.stat().st_mode
    if mode & 0o022:
        path.chmod(mode & 0o7777 & ~0o022)


def discard(path: Path) -> None:
    """Remove a file or a folder with all that it holds; what cannot be removed stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
