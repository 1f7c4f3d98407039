"""docs/loop.md: written by its program, whose scenarios test_survival.py plays."""

import csv

import pytest

from docs.programs import loop
from docs.programs.loop_seconds import STEPS, Taken
from docs.programs.loop_survival import Verdict, play
from docs.programs.page import ROOT, rows_of
from tests.helpers.scenarios import SCENARIOS, edits, title
from tests.helpers.scenarios.loaders import ours, plain
from tests.helpers.scenarios.scene import Scene


def test_the_page_has_every_step_and_scenario_and_ours_passes_all():
    rows = rows_of(loop.PART.read())
    assert [name for name, *_ in rows if name in STEPS.values()] == list(STEPS.values())
    with (ROOT / "docs" / loop.SURVIVAL).open(newline="") as file:
        verdicts = [(row["scenario"], row["ours"]) for row in csv.DictReader(file)]
    assert verdicts == [(title(scenario), "pass") for scenario in SCENARIOS]


def test_a_table_tells_what_was_not_built():
    assert loop.cell([Taken(2.0, True), Taken(4.0, True)], must_build=True) == "3.0 s (2)"
    assert loop.cell([Taken(0.006, False)], must_build=True) == "6 ms (1), **no build**"
    assert loop.cell([Taken(70.0, True)], must_build=False) == "70.0 s (1), **with a build**"


def test_the_verdicts_tell_what_happened_to_whom():
    head, rows = loop.verdict_rows(("a", "b"), {"x": (Verdict(True, ""), Verdict(False, "hangs"))})
    assert dict(zip(head, *rows, strict=True)) == {
        "scenario": "x",
        "a": "pass",
        "b": "fail",
        "what happened": "b: hangs",
    }
    assert "a passes 1 of 1; b passes 0 of 1" in loop.summary(
        ("a", "b"), {"x": (Verdict(True, ""), Verdict(False, "hangs"))}
    )


@pytest.mark.slow
def test_a_scenario_is_played_with_a_verdict(tmp_path, cache):
    def fine(scene: Scene) -> str:
        return "at once"

    def hangs(scene: Scene) -> None:
        scene.run("time.sleep(60)", patience=1)

    assert play(ours(cache), fine) == Verdict(True, "at once")
    assert play(ours(cache), hangs) == Verdict(False, "waits for ever (ended after 1 s)")


@pytest.mark.slow
def test_plain_load_is_played_with_too(tmp_path):
    assert play(plain(tmp_path), edits.path) == Verdict(True, "")
    assert play(plain(tmp_path), edits.header_edited) == Verdict(False, "answers 1 1; right is 1 2")
