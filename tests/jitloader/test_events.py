"""The line that a build prints where nobody listens."""

import pytest

from jitloader import events
from toolchain.errors import warnings_of
from toolchain.sources import includes_all_of_torch, label


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


def test_what_is_noted_of_parts_that_are_made_ahead_is_told_with_the_build(capsys):
    """They are compiled before a build of which they are parts begins, if one does."""
    with events.reported_as_one():
        events.note(["an early note"])
        assert capsys.readouterr().err == ""
        with events.announced("ext", "cpu", ["a note"]):
            events.note(["a late note"])
    with events.reported_as_one():
        events.note(["of a build that nobody is told of"])
    told = capsys.readouterr().err.splitlines()[1:]
    assert told == [
        "jitload: ext: a note",
        "jitload: ext: an early note",
        "jitload: ext: a late note",
    ]


def test_which_headers_are_large():
    assert includes_all_of_torch("#include <vector>\n#include <torch/extension.h>\n")
    assert includes_all_of_torch('#include "torch/all.h"')
    assert not includes_all_of_torch("#include <torch/library.h>")
    assert not includes_all_of_torch("#include <torch/csrc/stable/library.h>")


def test_wrong_formats_and_missing_returns_are_told_in_the_users_words(tmp_path):
    source = tmp_path / "k.cu"
    source.write_text("a\nb\n")
    place = label(source)
    output = (
        f"{place}:2:9: warning: format '%d' expects 'int' [-Wformat=]\n"
        f"{place}:2:9: warning: unused variable 'i' [-Wunused-variable]\n"
        "/usr/include/x.h:1:2: warning: format '%s' expects 'char*' [-Wformat=]\n"
        f"{source}(1): warning #181-D: argument is incompatible\n"
        f"{source}(1): warning #177-D: variable was declared\n"
        f"{place}:2:1: warning: no return statement in function [-Wreturn-type]\n"
        f'{source}(2): warning #940-D: missing return statement at end of non-void function "f"\n'
    )
    assert warnings_of(output, [source]) == [
        f"{place}:2: format '%d' expects 'int'",
        f"{place}:1: argument is incompatible",
        f"{place}:2: no return statement in function",
        "1 more like that",
    ]
    many = "".join(f"{place}:{n}:1: warning: format [-Wformat=]\n" for n in range(5))
    assert warnings_of(many, [source])[3:] == ["2 more like that"]
