"""The versions of a kernel since it was first followed, and how to restore them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime

from lab.watcher.files import Contents, changes_between, functions_between
from lab.watcher.result import Result, Version

GHOSTS = 6


@dataclass
class History:
    """Versions, distinguished by their files' contents, and the results of each.

    pinned: the version that others are compared with; None is none.
    """

    versions: list[Version] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    pinned: Version | None = None
    _contents: list[Contents] = field(default_factory=list)  # by a version's number - 1
    _lock: threading.RLock = field(default_factory=threading.RLock)  # the page's thread goes back

    def version_of(self, contents: Contents) -> Version:
        """The version with these contents: an earlier one, if it had the same."""
        with self._lock:
            return self._known(contents) or self._added(contents)

    def _known(self, contents: Contents) -> Version | None:
        for version, known in zip(self.versions, self._contents, strict=True):
            if all(contents.get(path) == data for path, data in known.items()):
                return version
        return None

    def _added(self, contents: Contents) -> Version:
        before = self._contents[-1] if self._contents else contents
        changes = changes_between(before, contents)
        functions = map(frozenset, functions_between(before, contents))
        version = Version(len(self.versions) + 1, datetime.now(), changes, *functions)
        self.versions.append(version)
        self._contents.append(dict(contents))
        return version

    def note(self, result: Result) -> None:
        """Keep a result, in the place of an earlier one of its version and settings."""
        same = result.version, result.settings
        self.results = [it for it in self.results if (it.version, it.settings) != same]
        self.results.append(result)

    def ghosts(self, result: Result) -> list[Result]:
        """The results before this one, under its settings, oldest first; the pinned one stays."""
        others = [
            it
            for it in self.results
            if it.settings == result.settings and it.version != result.version and it.measured
        ]
        pinned = [it for it in others[:-GHOSTS] if it.version == self.pinned]
        return pinned + others[-GHOSTS:]

    def restore(self, number: int, now: Contents) -> list[str]:
        """Have the files hold what they held in a version, and return the names of those changed.

        What they hold now becomes a version, too, if it is none. Only files that have changed since
        one began to follow them are written.

        Raises LookupError if there is no such version.
        """
        if not 1 <= number <= len(self.versions):
            raise LookupError(f"version: there is no {number}; there are 1 to {len(self.versions)}")
        self.version_of(now)
        changed = []
        for path, data in self._contents[number - 1].items():
            if not path.is_file() or path.read_bytes() != data:
                path.write_bytes(data)
                changed.append(path.name)
        return changed
