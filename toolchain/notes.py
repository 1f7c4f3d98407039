"""Digests, and small files that hold what was found out once."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


def digest_of(*parts: str | bytes) -> str:
    """One digest of several parts; where one ends and the next begins makes a difference."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def publish(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
