"""The builds that a cache holds, identified and compared by the sources kept with them."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass, field, fields
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jitloader.cache import MANIFEST
from toolchain.notes import read_note, write_note
from toolchain.tables import html_lines, html_table, text_table

if TYPE_CHECKING:
    from toolchain.instructions import Function
    from toolchain.listing import Listing
    from toolchain.listing_diff import ListingDiff


@dataclass(frozen=True)
class Build:
    """One build in the cache, and its manifest: this class alone writes and reads that.

    Attributes:
        digest: the end of its name; the first characters of it are enough for `kernel.at`.
        when: when it was built, local time.
        seconds: how long it took to build.
        target: "cuda" or "cpu".
        order: counts up with every build of these sources; the clock may go back.
        folder: where it lies; sources/ in it holds what was compiled.
        recipe: the key of what `load` was asked for.
        binding: how Python reaches its functions: "ops", "module" or "c"; a "program" has none.
        exports: their names; of C functions and kernels, what each takes and returns.
        aliases: the namespaces that the sources name, each with its operators, which are in the
            build's own.
        notes: what means something else there than to nvcc, and wrong formats of printf, a sentence
            each.
        torch: the version of torch that it was built with.
        kept: the file in sources/ of each source and header of the user's, by its name.
        inputs: the digest of each file that the compiler read, by its name.
        libraries: of the simulator's, those that it calls: keys of simulator.LIBRARIES.
        library_sha256: the digest of its library.
        launchers: of a build in parts, `toolchain.parts.Deferred.functions`; for a GPU the kernels
            that it launches. Else none.
        first: of a build in parts, the names of those that are opened with it, with spaces between.
    """

    digest: str
    when: datetime
    seconds: float
    target: str
    order: int
    folder: Path = field(repr=False)
    recipe: str = field(repr=False)
    binding: str = field(repr=False)
    exports: dict[str, Any] = field(repr=False, compare=False)
    aliases: dict[str, list[str]] = field(repr=False, compare=False)
    notes: list[str] = field(repr=False, compare=False)
    torch: str = field(repr=False)
    kept: dict[str, str] = field(repr=False, compare=False)
    inputs: dict[str, str] = field(repr=False, compare=False)
    libraries: list[str] = field(repr=False, compare=False)
    library_sha256: str = field(repr=False)
    launchers: dict[str, list] = field(repr=False, compare=False, default_factory=dict)
    first: str = field(repr=False, compare=False, default="")

    @property
    def name(self) -> str:
        """Of the extension, and so of its namespace in torch.ops."""
        return self.folder.name

    @property
    def library(self) -> Path:
        return self.folder / f"{self.name}.so"

    @property
    def image(self) -> Path:
        """Of a build by kernels, and of each of its parts: the code for the GPU."""
        return self.folder / "kernels.fatbin"

    def files(self) -> list[Path]:
        """Those without which it is not whole."""
        if self.target == "cpu" or not (self.launchers or self.binding == "part"):
            return [self.library]
        return [self.library, self.image] if self.launchers else [self.image]

    @classmethod
    def read(cls, folder: Path) -> Build | None:
        """The build in a folder of the cache; None where there is none, or not a whole one."""
        manifest = read_note(folder / MANIFEST)
        if manifest is None or manifest.keys() - _FIELDS_OF_PARTS != _FIELDS:
            return None  # a missing or damaged manifest, or one of an earlier release
        manifest["when"] = datetime.fromtimestamp(manifest["when"])
        return cls(folder=folder, **manifest)

    def write(self, folder: Path) -> None:
        """Leave the manifest in a folder that is to become this build's."""
        names = _FIELDS | _FIELDS_OF_PARTS if self.launchers else _FIELDS
        manifest = {name: getattr(self, name) for name in names}
        write_note(folder / MANIFEST, manifest | {"when": self.when.timestamp()})

    def used(self) -> None:
        """Note that it is used now: what is not for long, `prune` removes."""
        with contextlib.suppress(OSError):
            os.utime(self.folder / MANIFEST)

    def is_whole(self) -> bool:
        """A truncated library would not raise when opened, but kill the process."""
        with contextlib.suppress(OSError):
            data = b"".join(path.read_bytes() for path in self.files())
            whole = hashlib.sha256(data).hexdigest() == self.library_sha256
            return whole and (self.folder / "log").is_file()
        return False

    def log(self) -> str:
        """The compilers' output."""
        return (self.folder / "log").read_text("utf-8", errors="replace")

    def machine_code(self) -> tuple[Function, ...]:
        """Every function for a GPU in the library, instruction by instruction.

        Raises:
            MissingTool: cuobjdump or nvdisasm is not on this machine.
        """
        from toolchain.sass import machine_code  # late: a warm load does without

        return machine_code(self.library) if self.target == "cuda" else ()

    def sass(
        self,
        name: str = "",
        *,
        line: int | str | None = None,
        architecture: str | None = None,
        against: Build | None = None,
    ) -> Listing | ListingDiff:
        """The machine code of the GPU, beside the source lines that made it.

        Args:
            name: the functions with this in their name; "" for all.
            line: only what this line of the file that has the kernel made; "vec.cuh:45" for one of
                another file.
            architecture: as in "sm_90", where the build has several.
            against: an older build, to see what changed since.

        Returns:
            A list of functions, shown as text or HTML; of very many instructions, a table of the
            functions. With `against`, the functions that differ and how.

        Raises:
            MissingTool: cuobjdump or nvdisasm is not on this machine; the message says how to get
                it.
            ValueError: the build has no such function or line.
        """
        from jitloader.listings import listed  # late: a warm load does without

        return listed("SASS", self, name, line, architecture, against)

    def ptx(
        self,
        name: str = "",
        *,
        line: int | str | None = None,
        architecture: str | None = None,
        against: Build | None = None,
    ) -> Listing | ListingDiff:
        """The PTX that becomes the machine code, otherwise as `sass`.

        A build does not keep it: nvcc makes it once more, from the sources that the build keeps.
        """
        from jitloader.listings import listed

        return listed("PTX", self, name, line, architecture, against)

    def users_file(self, path: str) -> str | None:
        """The name in `kept` of a file that a compiler names by its path; None for others."""
        return next((name for name in self.kept if path == name or path.endswith(f"/{name}")), None)

    def sources(self) -> dict[str, list[str]]:
        """The lines of every source and header of the user's that was compiled, by its name.

        A file of a build that cannot be read any more has none; a build that is gone raises.
        """
        return {name: self._lines(file) for name, file in self.kept.items()}

    def _lines(self, kept: str) -> list[str]:
        try:
            return (self.folder / "sources" / kept).read_text(errors="replace").splitlines()
        except OSError:
            if not self.folder.is_dir():
                raise
            return []


_FIELDS_OF_PARTS = {"launchers", "first"}
_FIELDS = {each.name for each in fields(Build)} - {"folder"} - _FIELDS_OF_PARTS


class Diff:
    """What changed in the sources and headers between two builds; str() is a unified diff.

    Attributes:
        lines: the unified diff.
        added, removed: how many lines.
    """

    def __init__(self, before: Build, after: Build):
        import difflib  # late: a warm load does without

        self.before, self.after = before, after
        old, new = before.sources(), after.sources()
        self.lines: list[str] = []
        for name in dict.fromkeys([*old, *new]):
            self.lines += difflib.unified_diff(
                old.get(name, []),
                new.get(name, []),
                f"{name} ({before.digest[:8]})",
                f"{name} ({after.digest[:8]})",
                lineterm="",
            )
        kinds = list(map(self._kind, self.lines))
        self.added, self.removed = kinds.count("added"), kinds.count("removed")

    @staticmethod
    def _kind(line: str) -> str:
        if line.startswith(("--- ", "+++ ")):
            return "head"
        return {"+": "added", "-": "removed", "@": "place"}.get(line[:1], "same")

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return f"<Diff of {self.before.name} and {self.after.name}: {self.change}>"

    @property
    def change(self) -> str:
        return f"+{self.added} \N{MINUS SIGN}{self.removed}"

    def _repr_html_(self) -> str:
        return html_lines((self._kind(line), line) for line in self.lines)


class Builds(list[Build]):
    """Builds of one kernel, newest first, shown as a table of when, what and how long."""

    HEAD = ("", "when", "digest", "target", "lines", "seconds")

    def rows(self) -> list[tuple[str, ...]]:
        """A row a build; `lines` are those added and removed since the build before it."""
        changes = [Diff(before, after).change for after, before in pairwise(self)]
        return [
            (
                str(position),
                f"{build.when:%Y-%m-%d %H:%M:%S}",
                build.digest,
                build.target,
                change,
                f"{build.seconds:.2f}",
            )
            for position, (build, change) in enumerate(zip(self, [*changes, ""], strict=False))
        ]

    def __str__(self) -> str:
        return text_table([self.HEAD, *self.rows()])

    def _repr_html_(self) -> str:
        return html_table([self.HEAD, *self.rows()])
