"""What a report of lab.check says of each line: the same in text and in HTML."""

import html
import re

import pytest
import torch
from jit_cases import load, write

import lab

SOURCE = """
    __global__ void apart(const float* x, float* y, int n) {
        __shared__ float kept[64];
        int i = threadIdx.x;
        kept[2 * i] = x[0];
        __syncthreads();
        y[8 * i] = kept[i];
    }
"""


@pytest.fixture
def report(in_scratch):
    kernel = load(write("apart.cu", SOURCE))
    launch = kernel.apart[1, 32]
    return lab.check(launch, torch.ones(1), torch.empty(256), 32)


def in_html(report) -> tuple[list[str], dict[int, list[str]]]:
    """The titles of the columns, and by its number what stands beside a line."""
    shown = report._repr_html_()
    titles = re.findall(r"<th [^>]*>([^<]*)</th>", shown)
    rows = re.findall(r"<tr style[^>]*>(.*?)</tr>", shown)
    cells = [re.findall(r"<td [^>]*>([^<]*)</td>", html.unescape(row)) for row in rows]
    lines = [row for row in cells if row and row[0].isdigit()]  # the others say something of them
    return titles[1:], {int(number): beside for number, *beside, _ in lines}


def in_text(report) -> tuple[list[str], dict[int, list[str]]]:
    """The same; the columns lie below their titles."""
    *_, table = str(report).split("\n\n")
    _, titles, *rows = table.splitlines()
    found = re.finditer(r" +\w+(?: \(ideal\))?", titles)
    places = [it.span() for it in found if it.start() > titles.index("tensor")]
    beside = {}
    for row in rows:
        if not row.split()[1].isdigit():
            continue  # advice below the table
        cells = [row[begin:end].strip() for begin, end in places]
        beside.setdefault(int(row.split()[1]), []).append(cells)
    return [titles[begin:end].strip() for begin, end in places], beside


def test_text_and_html_have_the_same_columns(report):
    titles, lines = in_html(report)
    assert titles == ["bytes", "sectors (ideal)", "passes (ideal)"]
    text_titles, text_lines = in_text(report)
    assert text_titles == titles
    # A line of two accesses is one row of HTML, and two of text.
    assert sorted(text_lines[4]) == [["", "", "2.0 (1.0)"], ["32", "1.0 (1.0)", ""]]
    assert lines[4] == ["32", "1.0 (1.0)", "2.0 (1.0)"]
    assert sorted(text_lines[6]) == [["", "", "1.0 (1.0)"], ["1,024", "32.0 (4.0)", ""]]
    assert lines[6] == ["1,024", "32.0 (4.0)", "1.0 (1.0)"]


def test_a_memory_that_was_not_used_has_no_column(in_scratch):
    source = "__global__ void one(float* y) { y[threadIdx.x] = 1; }"
    kernel = load(write("one.cu", source))
    report = lab.check(kernel.one[1, 32], torch.empty(32))
    assert in_html(report)[0] == in_text(report)[0] == ["bytes", "sectors (ideal)"]
