"""Maps the addresses in a report to lines of the user's files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import dropwhile
from pathlib import Path
from typing import Any

import jitload
from lab.checker import symbols

TYPES = ("given", "fresh", "shared", "device", "private")  # of the recorder's regions, by number
DYNAMIC = "dynamic shared memory"
_STANDARD = r"/c\+\+/[\d.]+/"  # in the paths of C++ library headers


class Places:
    """Files and lines for what the recorder saw.

    sites: for each of the recorder's sites, file, line and the line inlined there.
    callers: for each of these, file and line in the kernel that called the function; ("", 0) if the
        line is the kernel's own.
    """

    def __init__(self, sites: list[dict[str, Any]], builds: list[jitload.Build]):
        self._builds = builds
        self._read: dict[str, list[str]] = {}
        self._sources = {file for build in builds for file in build.kept}
        found = {}
        for library in {site["library"] for site in sites} - {""}:
            offsets = [site["offset"] for site in sites if site["library"] == library]
            found[library] = symbols.frames(library, offsets)
        self.sites, self.callers = [], []
        self._own = set()  # sites in the user's files, not in foreign headers
        for number, site in enumerate(sites):
            frames = found.get(site["library"], {}).get(site["offset"], [])
            place = self._place(frames)
            outside_of_std = dropwhile(lambda it: re.search(_STANDARD, it.file), frames)
            own = next(outside_of_std, None)
            if own and self.users_file(own.file) is not None:
                self._own.add(number)
            if not place[1] and site["line"]:  # an instruction that names its own line
                place = self.users_file(site["file"]) or site["file"], site["line"], ""
            self.callers.append(self._caller(frames, place))
            self.sites.append((place[0], self.instruction(*place[:2]), place[2]))

    def _caller(self, frames: list[symbols.Frame], place: tuple[str, int, str]) -> tuple[str, int]:
        users = [(file, it.line) for it in frames if (file := self.users_file(it.file)) is not None]
        return users[-1] if users and users[-1] != place[:2] else ("", 0)

    def instruction(self, file: str, line: int) -> int:
        """For a line with an asm statement's operands, the line of its first instruction."""
        lines = self._lines(file)
        if not 0 < line <= len(lines) or not re.match(
            r"\s*(:|\"[=+&]*\w+\"\s*\()", lines[line - 1]
        ):
            return line
        for before in range(line, 0, -1):
            if re.search(r"[;{}]\s*$", lines[before - 1]) and before < line:
                break
            if re.search(r"\b(asm|__asm__)\b", lines[before - 1]):
                texts = (n for n in range(before, line) if '"' in lines[n - 1])
                return next(texts, line)
        return line

    def _place(self, frames: list[symbols.Frame]) -> tuple[str, int, str]:
        """The innermost line in a .cu or .cpp file; else in the header that has the kernel."""
        users = [
            (file, frame.line)
            for frame in frames
            if (file := self.users_file(frame.file)) is not None
        ]
        if not users:
            return "", 0, ""
        own = [place for place in users if place[0].endswith((".cu", ".cpp"))]
        own = own or [place for place in users if place[0] == users[-1][0]]
        (file, line), inner = own[0], users[0]
        via = "" if inner == own[0] else f"{Path(inner[0]).name}:{inner[1]}"
        return file, line, via

    def place(self, library: str, offset: int) -> tuple[str, int, str]:
        """File and line of an instruction, and the line inlined there."""
        return self._place(symbols.frames(library, [offset])[offset])

    def at(self, library: str, offset: int, kernel: str) -> tuple[str, int]:
        """File and line of an instruction; the kernel's if it has none, as in an empty loop."""
        file, line, _ = self.place(library, offset)
        return (file, line) if line else self._definition(re.sub(r"<.*|.*::", "", kernel))

    def _definition(self, kernel: str) -> tuple[str, int]:
        for build in self._builds:
            for name, kept in build.kept.items():
                text = (build.folder / "sources" / kept).read_text(errors="replace")
                begins = rf"\b__global__\b[^;{{]*?\b{re.escape(kernel)}(?=\s*\()"
                if found := re.search(begins, jitload.blank(text)):
                    return name, text.count("\n", 0, found.end()) + 1
        return "", 0

    def first_of(self, callers: list[tuple[str, int]]) -> tuple[str, int]:
        """The first place in the user's files among a function's callers; else ("", 0)."""
        libraries = {str(build.library) for build in self._builds}
        for library, offset in callers:
            if library in libraries:
                file, line, _ = self._place(symbols.frames(library, [offset])[offset])
                if line:
                    return file, line
        return "", 0

    def of_callers(self, callers: list[tuple[str, int]]) -> str:
        """The same as text; "" if there is none."""
        file, line = self.first_of(callers)
        return f"{Path(file).name}:{line}" if line else ""

    def is_hosts_own(self, place: dict[str, Any]) -> bool:
        """Whether host code made the access: in the user's files, or in the C++ library called from
        them, but in no other header.

        Accesses made by Thrust count as the device's, wherever they stand.
        """
        return place["site"] in self._own and not any(
            re.search(r"#\s*include\s*<thrust/", text) for text in self._texts()
        )

    def _texts(self) -> Iterator[str]:
        for build in self._builds:
            for kept in build.kept.values():
                yield (build.folder / "sources" / kept).read_text(errors="replace")

    def made(
        self, region: dict[str, Any], callers: list[tuple[str, int]], launch: dict[str, Any] | None
    ) -> str:
        """Where memory comes from, as text; "" if unknown."""
        match TYPES[region["type"]]:
            case "given":
                return "given to the call"
            case "fresh":
                place = self.of_callers(callers)
                return f"allocated at {place}" if place else ""
            case "shared" if region["name"] == DYNAMIC:
                return f"of the launch at {Path(launch['file']).name}:{launch['line']}"
        found = self._declaration(region["name"], launch["kernel"] if launch else "")
        return f"declared at {found}" if found else ""

    def is_constant(self, name: str) -> bool:
        """Whether a device variable lies in constant memory."""
        declared = re.compile(rf"\b__constant__\b[^;{{]*?\b{re.escape(name)}\b")
        return any(map(declared.search, self._blank_texts))

    @cached_property
    def _blank_texts(self) -> list[str]:
        return [*map(jitload.blank, self._texts())]

    def _declaration(self, name: str, kernel: str) -> str:
        """Where a device variable is declared: the last of that name before the kernel ends."""
        declared = (
            r"(?:\b__(?:shared|constant|managed)__\b[^;{]*?|\b__device__\b[^;({]*?)"
            rf"\b{re.escape(name)}\b"
        )
        _, kernels_line = self._definition(re.sub(r"<.*|.*::", "", kernel))
        for build in self._builds:
            for file, kept in build.kept.items():
                text = jitload.blank((build.folder / "sources" / kept).read_text(errors="replace"))
                lines = [text.count("\n", 0, it.end()) + 1 for it in re.finditer(declared, text)]
                if lines:
                    after = [line for line in lines if line >= kernels_line]
                    return f"{Path(file).name}:{after[0] if after else lines[-1]}"
        return ""

    def index(self, file: str, line: int, column: int) -> dict[str, Any]:
        """For a wrong index whose bracket closes at this place: the array in source notation, and
        how certain the error is.

        An index within a row may run into the next row on purpose: that is a note, and no finding
        if it starts from row 0. An address that is only taken is no finding either.
        """
        text = self._text(file, line)[:column]
        named = re.search(r"(&\s*)?((?:\w|\.|->|::)+)((?:\[[^][]*\])*)\[[^][]*\]$", text)
        if not named:
            return {"element": ""}
        address, name, rows = named.groups()
        is_meant = address or (rows and not re.sub(r"\[\s*0\s*\]", "", rows))
        severity = "" if is_meant else "note" if rows else "error"
        return {"element": name + rows, "severity": severity}

    def product_at(self, file: str, line: int) -> str:
        """An index at a line that contains a product; "" if there is none."""
        found = re.search(r"\[([^][]*\*[^][]*)\]", self._text(file, line))
        return found[1].strip() if found else ""

    def _text(self, file: str, line: int) -> str:
        lines = self._lines(file)
        return lines[line - 1] if 0 < line <= len(lines) else ""

    def _lines(self, file: str) -> list[str]:
        if file not in self._read:
            kept = [
                (it.folder / "sources", it.kept[file]) for it in self._builds if file in it.kept
            ]
            text = (kept[0][0] / kept[0][1]).read_text(errors="replace") if kept else ""
            self._read[file] = text.splitlines()
        return self._read[file]

    def users_file(self, file: str) -> str | None:
        """The file's name among the compiled sources and headers; None if it is not one of them."""
        for known in self._sources:
            if file == known or file.endswith(known if known[0] == "/" else f"/{known}"):
                return known
        return None

    def of(self, place: dict[str, Any], message: str) -> tuple[str, int, str]:
        """The place of one access: its site, or else one that the recorder or the message names."""
        if place["site"] >= 0 and self.sites[place["site"]][1]:
            return self.sites[place["site"]]
        if place["line"]:
            return self.users_file(place["file"]) or place["file"], place["line"], ""
        return (*next(iter(self.named_in(message)), ("", 0)), "")

    def named_in(self, message: str) -> list[tuple[str, int]]:
        """The places that a failure's message names, except the launch."""
        message = self.spelled_out(message).partition("): ")[2]
        places = re.findall(r"(\S+):(\d+): ", message)
        return [(self.users_file(file) or file, int(line)) for file, line in places]

    def spelled_out(self, message: str) -> str:
        """The message with file and line in place of site numbers, and the user's file names."""

        def place(match: re.Match[str]) -> str:
            file, line, _ = self.sites[int(match["site"])]
            return f"{file}:{line}: "

        return re.sub(r"\(site\):(?P<site>\d+): ", place, message)
