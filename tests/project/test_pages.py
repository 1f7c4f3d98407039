"""The pages of docs/ that programs write a part of."""

import re

import pytest

from docs.programs import page
from docs.programs.page import Part, duration, rows_of, table

WRITTEN = [
    (path.name, program)
    for path in sorted((page.ROOT / "docs").glob("*.md"))
    for program in re.findall(r"<!-- python -m (\S+) writes from here -->", path.read_text())
]


@pytest.mark.parametrize(("name", "program"), WRITTEN)
def test_a_part_of_a_page_names_its_program_and_has_tables(name, program):
    source = (page.ROOT / program.replace(".", "/")).with_suffix(".py").read_text()
    assert f'Part("{name}", "{program}")' in source
    assert rows_of(Part(name, program).read())


def test_every_program_has_its_part():
    programs = [
        f"docs.programs.{path.stem}"
        for path in (page.ROOT / "docs/programs").glob("*.py")
        if "\nPART = Part(" in path.read_text()
    ]
    assert sorted(programs) == sorted(program for _, program in WRITTEN)


def test_a_part_is_written_and_the_rest_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "ROOT", tmp_path)
    part, other = Part("a.md", "docs.programs.a"), Part("a.md", "docs.programs.b")
    (tmp_path / "docs").mkdir()
    path = tmp_path / "docs/a.md"
    path.write_text(f"before\n\n{part.begin}\n{page.END}\n\n{other.begin}\nold\n{page.END}\nend\n")
    for text in ("1", "2"):
        part.write(text)
        assert (part.read(), other.read()) == (text, "old")
    assert path.read_text().startswith(f"before\n\n{part.begin}\n\n2\n\n{page.END}\n\n<!--")
    assert path.read_text().endswith("\nend\n")
    with pytest.raises(ValueError, match=r"a\.md: wanted are the lines <!-- python -m c writes"):
        Part("a.md", "c").write("3")


def test_a_table_is_read_as_it_is_written():
    text = table(["", "n", "n"], [["a|b", 1, ""], ["c", 2.5, "d"]], "lr")
    assert text.splitlines()[:2] == ["| | n | n |", "| --- | ---: | ---: |"]
    assert rows_of(text) == [["", "n", "n"], ["a/b", "1", ""], ["c", "2.5", "d"]]


def test_a_duration_is_told_in_seconds_or_milliseconds():
    assert [duration(seconds) for seconds in (70, 1, 0.0064)] == ["70.0 s", "1.0 s", "6 ms"]
