"""The line that a build prints where nobody listens."""

import pytest

from jitloader import events
from toolchain.sources import includes_all_of_torch


def test_a_build_says_why_it_takes_long_and_at_its_end_what_to_know(capsys):
    with events.announced("ext", "cpu", ["one thing", "another"], "large headers") as tell:
        tell("1 of 2: ext.cu")
    line, *notes = capsys.readouterr().err.splitlines()
    assert line.startswith("jitload: building ext for cpu (large headers) ... done in")
    assert notes == ["jitload: ext: one thing", "jitload: ext: another"]
    with pytest.raises(ValueError, match="it"), events.announced("ext", "cpu", ["one thing"]):
        raise ValueError("it")
    assert "one thing" not in capsys.readouterr().err


def test_listeners_are_told_with_every_stage(monkeypatch):
    told = []
    monkeypatch.setattr(events, "listeners", [told.append])
    with events.announced("ext", "cpu", ["a note"], "large headers") as tell:
        tell("1 of 2: ext.cu")
    assert [event.stage for event in told[:2]] == [
        "starting (large headers)",
        "1 of 2: ext.cu (large headers)",
    ]
    assert {event.notes for event in told} == {("a note",)}


def test_which_headers_are_large():
    assert includes_all_of_torch("#include <vector>\n#include <torch/extension.h>\n")
    assert includes_all_of_torch('#include "torch/all.h"')
    assert not includes_all_of_torch("#include <torch/library.h>")
    assert not includes_all_of_torch("#include <torch/csrc/stable/library.h>")
