"""Digests, and notes: small files that keep results.

A note that is truncated, damaged or replaced by something else counts as missing, and the result is
computed again.
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
    """One digest of several parts; it depends on where each part ends."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def publish(path: Path, text: str) -> None:
    """Write a file atomically, so that a reader sees all of it or none."""
    made(path.parent)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, 0o644)  # the cache folder's mode decides who can read it
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
    """Publish facts as JSON, with a digest from which `read_note` sees that they are complete."""
    text = json.dumps(facts, indent=1).removesuffix("\n}")
    publish(path, f'{text}{_SEAL}{digest_of(text)}"\n}}')


def read_note(path: Path) -> dict[str, Any] | None:
    """The facts that `write_note` wrote; None if there is nothing, or something else."""
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
    """The folder, made if it is missing or not a folder; other users cannot write to it."""
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    except FileExistsError:
        discard(folder)
        folder.mkdir(mode=0o755, exist_ok=True)
    close_to_others(folder)
    return folder


def publish_folder(work: Path, place: Path) -> None:
    """Move a folder to `place`, atomically.

    Raises: OSError, if another process did so first.
    """
    for path in (work, *work.rglob("*")):
        close_to_others(path)
    made(place.parent)
    discard(place)  # if damaged
    work.rename(place)


def close_to_others(path: Path) -> None:
    """Remove other users' write permission, whatever the umask was when this was made."""
    mode = path.stat().st_mode
    if mode & 0o022:
        path.chmod(mode & 0o7777 & ~0o022)


def discard(path: Path) -> None:
    """Remove a file, or a folder with its contents; what cannot be removed stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
