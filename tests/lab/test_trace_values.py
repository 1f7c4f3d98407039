"""Every value that a trace shows, beside what printf says at the same place."""

import ctypes
import re
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from checked import instrumented

import jitload
import lab

SOURCE = Path(__file__).parent / "traced/values.cu"
KERNELS = ["arrays", "lambdas", "numbers", "diverged", "reduced"]
MARK = re.compile(r"/\*:(?P<names>.*?):\*/")


def printing(text: str) -> str:
    """The source with a printf at the end of each marked line."""

    def printed(names: str, number: int) -> str:
        at = "blockIdx.x, threadIdx.x + threadIdx.y * blockDim.x"
        said = [name.strip() for name in names.split(",")]
        return "".join(
            f'printf("@%d %d {number} {name} %a\\n", {at}, double({name}));' for name in said
        )

    lines = ["#include <cstdio>"]
    for number, line in enumerate(text.splitlines(), 1):
        found = MARK.search(line)
        lines.append(line[: found.start()] + printed(found["names"], number) if found else line)
    return "\n".join(lines)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The source as it is, and with printf."""
    place = tmp_path_factory.mktemp("values")
    plain, printed = place / "values.cu", place / "printed.cu"
    plain.write_text(SOURCE.read_text())
    printed.write_text(printing(SOURCE.read_text()))
    # A trace is not optimised: a product and a sum round one after the other.
    flags = ["-ffp-contract=off"]
    traced = instrumented(plain, trace=True, flags=flags)
    return [traced, jitload.load(printed, target="cpu", flags=flags)]


def shown(values: dict, name: str) -> float:
    """A value of a trace, by an expression as the source has it."""
    name = re.sub(r"^__\w+\((\w+)\)$", r"\1" + (".y" if "high" in name else ""), name)
    found = values[re.match(r"\w+", name)[0]]
    for member, index in re.findall(r"\.(\w+)|\[(\w+)\]", name):
        found = found[member] if member else found[int(values.get(index, index))]
    named = {"Red": 0, "Green": 7}
    return float(named.get(found, found) if isinstance(found, str) else found)


@pytest.mark.parametrize("name", KERNELS)
def test_values_are_those_that_printf_says(kernels, name, capfd):
    torch.manual_seed(1)
    plain, printed = kernels
    x, y = torch.randn(128), torch.zeros(128)
    getattr(printed, f"run_{name}")(x, y.clone(), 128)
    ctypes.CDLL(None).fflush(None)
    told = defaultdict(list)
    for block, thread, line, of, value in re.findall(
        r"@(\d+) (\d+) (\d+) (.*) (\S+)$", capfd.readouterr().out, re.MULTILINE
    ):
        told[int(block), int(thread), int(line), of].append(float.fromhex(value))
    assert len(told) > 60
    traces = {}
    compared = 0
    for (block, thread, line, of), wanted in told.items():
        if block not in traces:
            traces[block] = lab.trace(getattr(plain, f"run_{name}"), x, y, 128, block=block)
        if "part[" in of or "total[" in of:
            continue  # memory, below
        steps = traces[block].runs_of(line, thread)
        got = [shown(traces[block].values(thread, step), of) for step in steps]
        assert got == pytest.approx(wanted, rel=0, abs=0, nan_ok=True), (thread, line, of)
        compared += len(got)
    assert compared > 100
    assert not any(it.is_cut for it in traces.values())
    for it in traces.values():  # y is larger than what they write
        assert set(it.report.findings["kind"]) <= {"unwritten"}
