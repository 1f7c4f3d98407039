"""Where in the user's files the addresses of a report lie."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jitload
from lab.checker import symbols


class Places:
    """Files and lines of what the recorder saw.

    sites: file, line and the line inlined there, for every site of the recorder's.
    """

    def __init__(self, sites: list[dict[str, Any]], builds: list[jitload.Build]):
        self._builds = builds
        self._sources = {file for build in builds for file in build.kept}
        found = {}
        for library in {site["library"] for site in sites} - {""}:
            offsets = [site["offset"] for site in sites if site["library"] == library]
            found[library] = symbols.frames(library, offsets)
        self.sites = []
        for site in sites:
            place = self._place(found.get(site["library"], {}).get(site["offset"], []))
            if not place[1] and site["line"]:  # an instruction that tells of itself
                place = self.users_file(site["file"]) or site["file"], site["line"], ""
            self.sites.append(place)

    def _place(self, frames: list[symbols.Frame]) -> tuple[str, int, str]:
        """The innermost line of a .cu or .cpp file; else of the header that has the kernel."""
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

    def at(self, library: str, offset: int, kernel: str) -> tuple[str, int]:
        """Of a kernel's instruction; where it is of no line, as an empty loop's, the kernel's."""
        file, line, _ = self._place(symbols.frames(library, [offset])[offset])
        return (file, line) if line else self._definition(re.sub(r"<.*|.*::", "", kernel))

    def _definition(self, kernel: str) -> tuple[str, int]:
        for build in self._builds:
            for name, kept in build.kept.items():
                text = (build.folder / "sources" / kept).read_text(errors="replace")
                begins = rf"\b__global__\b[^;{{]*?\b{re.escape(kernel)}(?=\s*\()"
                if found := re.search(begins, jitload.blank(text)):
                    return name, text.count("\n", 0, found.end()) + 1
        return "", 0

    def users_file(self, file: str) -> str | None:
        """Its name among the sources and headers that were compiled; None if it is not."""
        for known in self._sources:
            if file == known or file.endswith(known if known[0] == "/" else f"/{known}"):
                return known
        return None

    def of(self, place: dict[str, Any], message: str) -> tuple[str, int, str]:
        """Of one access: its site's, or else what the recorder or a failure's message names."""
        if place["site"] >= 0 and self.sites[place["site"]][1]:
            return self.sites[place["site"]]
        if place["line"]:
            return self.users_file(place["file"]) or place["file"], place["line"], ""
        return (*next(iter(self.named_in(message)), ("", 0)), "")

    def named_in(self, message: str) -> list[tuple[str, int]]:
        """The places that a failure's message names, but for where the kernel was launched."""
        message = self.spelled_out(message).partition("): ")[2]
        places = re.findall(r"(\S+):(\d+): ", message)
        return [(self.users_file(file) or file, int(line)) for file, line in places]

    def spelled_out(self, message: str) -> str:
        """With the file and line of each site that it names by number, and with users' files."""

        def place(match: re.Match[str]) -> str:
            file, line, _ = self.sites[int(match["site"])]
            return f"{file}:{line}: "

        return re.sub(r"\(site\):(?P<site>\d+): ", place, message)
