"""docs/bindings.md: written by its program, and what chapter 12 says of it."""

import re

from docs.programs import bindings
from docs.programs.page import rows_of

ROWS = rows_of(bindings.PART.read())


def runs() -> dict[str, dict[tuple[str, str], bool]]:
    """For each binding, whether a build of one release runs under another."""
    head, *rows = ROWS[[row[0] for row in ROWS].index("binding") :]
    releases = [name.removeprefix("run under ") for name in head[2:]]
    found: dict[str, dict] = {}
    for binding, built, *verdicts in rows:
        for release, verdict in zip(releases, verdicts, strict=True):
            found.setdefault(binding, {})[built, release] = verdict == "runs"
    return found


def number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release)[:2])


def test_every_binding_was_compiled():
    assert set(bindings.SOURCES) <= {row[0] for row in ROWS}


def test_a_build_through_atens_classes_is_for_one_release():
    for binding in ("pybind11", "TORCH_LIBRARY"):
        pairs = runs()[binding]
        assert pairs == {(built, release): built == release for built, release in pairs}


def test_a_build_by_the_stable_abi_is_for_its_own_release_and_later_ones():
    pairs = runs()["stable ABI"].items()
    assert all(fine for (built, release), fine in pairs if number(built) <= number(release))
    assert not all(fine for _, fine in pairs)
    assert all(runs()[bindings.TARGETED].values())
    assert all(runs()["C functions"].values())
