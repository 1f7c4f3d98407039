"""docs/loop.md: written by its program, whose scenarios can be played."""

import re

import pytest

from docs import loop
from docs.loop_seconds import STEPS, Taken
from docs.loop_survival import SCENARIOS, Fails, Scene, Verdict, ours, play


def test_the_page_has_every_step_and_scenario_and_ours_passes_all():
    written = loop.PAGE.read_text().partition(loop.MARKER)[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", written, re.MULTILINE)
    firsts = [first for first, _ in rows]
    assert [name for name in firsts if name in STEPS.values()] == list(STEPS.values())
    verdicts = {name: ours for name, ours in rows if name in SCENARIOS}
    assert verdicts == dict.fromkeys(SCENARIOS, "pass")


def test_a_table_tells_what_was_not_built():
    assert loop.cell([Taken(2.0, True), Taken(4.0, True)], must_build=True) == "3.0 s (2)"
    assert loop.cell([Taken(0.006, False)], must_build=True) == "6 ms (1), **no build**"
    assert loop.cell([Taken(70.0, True)], must_build=False) == "70.0 s (1), **with a build**"


def test_a_verdict_table_tells_what_happened_to_whom():
    table = loop.verdict_table(("a", "b"), {"x": (Verdict(True, ""), Verdict(False, "hangs"))})
    assert table.splitlines()[-1] == "| x | pass | **fail** | b: hangs |"


def test_a_process_that_waits_for_ever_is_a_verdict(tmp_path, cache):
    scene = Scene(ours(cache), tmp_path)
    with pytest.raises(Fails, match=r"waits for ever \(ended after 1 s\)"):
        scene.run("time.sleep(60)", limit=1)


@pytest.mark.parametrize("name", ["a header shadowed, in one process", "a stale lock file"])
def test_a_scenario_can_be_played(cache, name):
    (whole,) = [scenario for scenario in SCENARIOS if scenario.startswith(name)]
    assert play(ours(cache), whole) == Verdict(True, "")
