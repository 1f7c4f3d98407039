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
    """One build in the cache, and its manifest, which only this class reads and writes.

    Attributes:
        digest: the end of its name; `kernel.at` accepts its first characters.
        when: when it was built, local time.
        seconds: how long it took to build.
        target: "cuda" or "cpu".
        order: increases with every build of these sources; `when` may not (the clock may go back).
        folder: where it is; sources/ in it holds what was compiled.
        recipe: the key of the recipe that `load` was called with.
        binding: how Python reaches its functions: "ops", "module" or "c"; a "program" has none.
        exports: the functions' names; for C functions and kernels also parameters and results.
        aliases: the namespaces that the sources name, each with its operators; the operators are
            in the build's own namespace.
        notes: a sentence for each thing that has another meaning for this target than for nvcc, and
            for each wrong format of printf.
        torch: the version of torch that it was built with.
        kept: the file in sources/ for each source and header of the user, by its name.
        inputs: the digest of each file that the compiler read, by its name.
        libraries: the simulator's libraries that it calls: keys of simulator.LIBRARIES.
        library_sha256: the digest of its library.
        launchers: for a build in parts, `toolchain.parts.Deferred.functions`; for a GPU, the
            kernels that it launches; else empty.
        first: for a build in parts, the names of the parts opened with it, separated by spaces.
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
        """The name of the extension, and so of its namespace in torch.ops."""
        return self.folder.name

    @property
    def library(self) -> Path:
        return self.folder / f"{self.name}.so"

    @property
    def image(self) -> Path:
        """The GPU code of a build whose kernels are compiled one by one, and of each part."""
        return self.folder / "kernels.fatbin"

    def files(self) -> list[Path]:
        """The files that a complete build has."""
        if self.target == "cpu" or not (self.launchers or self.binding == "part"):
            return [self.library]
        return [self.library, self.image] if self.launchers else [self.image]

    @classmethod
    def read(cls, folder: Path) -> Build | None:
        """The build in a folder of the cache; None if there is none, or an incomplete one."""
        manifest = read_note(folder / MANIFEST)
        if manifest is None or manifest.keys() - _FIELDS_OF_PARTS != _FIELDS:
            return None  # a missing or damaged manifest, or one of an earlier release
        manifest["when"] = datetime.fromtimestamp(manifest["when"])
        return cls(folder=folder, **manifest)

    def write(self, folder: Path) -> None:
        """Write the manifest into the folder that becomes this build's."""
        names = _FIELDS | _FIELDS_OF_PARTS if self.launchers else _FIELDS
        manifest = {name: getattr(self, name) for name in names}
        write_note(folder / MANIFEST, manifest | {"when": self.when.timestamp()})

    def used(self) -> None:
        """Note that it is used now: `prune` removes builds that were not used for long."""
        with contextlib.suppress(OSError):
            os.utime(self.folder / MANIFEST)

    def is_whole(self) -> bool:
        """Whether no file is damaged: opening a truncated library would kill the process."""
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
        from toolchain.sass import machine_code  # late: a warm load does not need it

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
            name: only functions whose name contains this; "" for all.
            line: only the instructions of this line of the kernel's file; "vec.cuh:45" for a line
                of another file.
            architecture: such as "sm_90", if the build has several.
            against: an older build, to see what changed since.

        Returns:
            A list of functions, shown as text or HTML; if there are very many instructions, as a
            table of the functions. With `against`, the functions that differ, and how.

        Raises:
            MissingTool: cuobjdump or nvdisasm is not on this machine; the message says how to get
                it.
            ValueError: the build has no such function or line.
        """
        from jitloader.listings import listed  # late: a warm load does not need it

        return listed("SASS", self, name, line, architecture, against)

    def ptx(
        self,
        name: str = "",
        *,
        line: int | str | None = None,
        architecture: str | None = None,
        against: Build | None = None,
    ) -> Listing | ListingDiff:
        """The PTX that the machine code is made from; otherwise as `sass`.

        A build does not keep it: nvcc makes it again, from the sources that the build keeps.
        """
        from jitloader.listings import listed

        return listed("PTX", self, name, line, architecture, against)

    def users_file(self, path: str) -> str | None:
        """The name in `kept` of the file that a compiler names by this path; None for others."""
        return next((name for name in self.kept if path == name or path.endswith(f"/{name}")), None)

    def sources(self) -> dict[str, list[str]]:
        """The lines of every source and header of the user that was compiled, by its name.

        A file that cannot be read any more has no lines; a build that is gone raises.
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
        added, removed: the numbers of lines.
    """

    def __init__(self, before: Build, after: Build):
        import difflib  # late: a warm load does not need it

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
    """Builds of one kernel, newest first, shown as a table of times, changes and durations."""

    HEAD = ("", "when", "digest", "target", "lines", "seconds")

    def rows(self) -> list[tuple[str, ...]]:
        """A row for each build; `lines` are those added and removed since the build before it."""
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
