"""Listings of builds' machine code and PTX beside the source lines, and their changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolchain.listing import Listing, ListingSource
from toolchain.listing_diff import ListingDiff
from toolchain.ptx import ptx

if TYPE_CHECKING:
    from jitloader.builds import Build

FOR_A_GPU = (
    "{name} is built for the CPU's simulator: it has no {language} of a GPU."
    ' jitload.ensure(..., target="cuda") compiles for one, which need not be here, and the build'
    " that it returns has .{method}(); `python -m jitload {method} {name}` shows it in a terminal."
)


def listed(
    language: str,
    build: Build,
    name: str,
    line: int | str | None,
    architecture: str | None,
    against: Build | None,
) -> Listing | ListingDiff:
    """A build's listing in "SASS" or "PTX", or its differences from an older build's."""
    now = _listing(language, build)
    if against is None:
        return now.only(name, line, architecture)
    if line is not None:
        raise ValueError("line: a diff is of whole functions: leave out line, or against")
    before = _listing(language, against)
    if note := now.note or before.note:
        return ListingDiff(Listing([], before.code, note), now)
    wanted = Listing([*now, *before], now.code).only(name, architecture=architecture)
    keys = {(it.symbol, it.architecture) for it in wanted}
    old, new = (
        Listing([it for it in side if (it.symbol, it.architecture) in keys], side.code)
        for side in (before, now)
    )
    return ListingDiff(old, new)


def _listing(language: str, build: Build) -> Listing:
    """All functions of a build; none, with a note that says why, if it is not for a GPU."""
    code = ListingSource(language, build.name, build.sources(), build.users_file)
    if build.target != "cuda":
        short = build.name.rpartition("_")[0]
        return Listing(
            [],
            code,
            FOR_A_GPU.format(name=short, language=language, method=language.lower()),
        )
    functions = (
        build.machine_code()
        if language == "SASS"
        else ptx(build.folder, build.log(), tuple(build.kept.items()))
    )
    note = "" if functions else f"{build.name} has no function for a GPU."
    return Listing(list(functions), code, note)
