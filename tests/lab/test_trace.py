"""`lab.trace`: what a trace shows of beginners' mistakes, its page in a browser, and its limits."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from browsers import browser, needs_browser
from checked import instrumented

import jitload
import lab
from tests.helpers import forks

SOURCE = Path(__file__).parent / "traced/mistakes.cu"


def lines_of(source: Path) -> dict[str, int]:
    return {
        match[1]: number
        for number, line in enumerate(source.read_text().splitlines(), 1)
        if (match := re.search(r"// here (\w+)", line))
    }


def line_of(name: str, mark: str) -> int:
    return lines_of(SOURCE.with_name(name))[mark]


LINES = lines_of(SOURCE)
X = torch.arange(128.0) + 1
# At which thread, after how many runs of the line, which variable has which wrong value.
SEEN = {
    "wrong_index": (1, 0, "i", 64),  # neighbours are 64 apart
    "wrong_tail": (0, 4, "half", 1),  # after 3: of three sums the last is not added
    "swapped": (1, 0, "at", 32),  # neighbours are 32 apart
    "overflow": (0, 0, "all", 10**10 - 2 * 2**32),
    "diverged_shuffle": (0, 0, "other", 1.0),  # its own: lane 16 takes no part
    "wrong_stride": (0, 1, "sum", 1.0 + 33.0),  # x[32] is thread 32's, too
    "stale_buffer": (0, 1, "now", 64.0),  # of the first tile, in the second round
}
# Which kinds of findings, with which steps, lead to the line.
FOUND = {
    "missing_barrier": "race",
    "uninitialised": "uninitialised",
    "off_by_one": "out of bounds",
}


@pytest.fixture(scope="module")
def kernels() -> jitload.Kernel:
    return jitload.load(SOURCE, target="cpu")


def traced(kernels: jitload.Kernel, name: str, **options: object) -> lab.Trace:
    return lab.trace(getattr(kernels, f"run_{name}"), X, torch.zeros(128), 128, **options)


@pytest.mark.parametrize("name", SEEN)
def test_a_wrong_value_is_seen_where_it_comes_about(kernels, name):
    thread, run, variable, wrong = SEEN[name]
    trace = traced(kernels, name)
    step = trace.runs_of(LINES[name], thread)[run]
    assert trace.values(thread, step)[variable] == wrong


@pytest.mark.parametrize("name", FOUND)
def test_a_finding_leads_to_its_steps(kernels, name):
    trace = traced(kernels, name)
    found = [it for it in trace.findings() if it["title"].startswith(FOUND[name])]
    assert found, trace.findings()
    ends = found[0]["ends"]
    assert LINES[name] in [end["line"] for end in ends]
    assert len(ends) == 1 + (FOUND[name] == "race")
    for end in ends:
        assert trace.line_of(end["thread"], end["step"]) == end["line"]
    if name == "off_by_one":  # not at the line's first run
        assert trace.values(ends[0]["thread"], ends[0]["step"])["k"] == 64


def test_lanes_that_went_different_ways_meet_again(kernels):
    trace = traced(kernels, "diverged_shuffle")
    last = {trace.groups(warp, trace.steps - 1)[0][1] for warp in range(2)}
    assert last == {"0-31"}
    (line, lanes, count, most), *others = trace.groups(
        0, trace.runs_of(LINES["diverged_shuffle"])[0]
    )
    assert (line, lanes, count, most, others) == (LINES["diverged_shuffle"], "0-15", 16, 32, [])


@pytest.mark.parametrize("name", FOUND)
def test_a_report_of_the_checker_opens_the_trace_at_a_finding(kernels, name):
    report = lab.check(getattr(kernels, f"run_{name}"), X, torch.zeros(128), 128)
    number = [it.startswith(FOUND[name]) for it in report.findings["kind"]].index(True)
    trace = report.trace(number, steps=3)
    assert trace.is_cut or trace.steps <= 3
    found = trace.findings()[trace.finding]
    assert found["title"].startswith(FOUND[name])
    for end in found["ends"]:
        assert trace.line_of(end["thread"], end["step"]) == end["line"]
    assert trace.start in [(end["step"], end["thread"]) for end in found["ends"]]
    if name == "off_by_one":
        assert trace.values(end["thread"], end["step"])["k"] == 64


def test_accesses_far_apart_are_both_shown_and_the_page_says_what_is_left_out(kernels):
    report = lab.check(kernels.run_far_apart, X, torch.zeros(128), 128)
    (number,) = (report.findings["kind"] == "race").to_numpy().nonzero()[0]
    trace = report.trace(number, steps=10)
    ends = trace.findings()[trace.finding]["ends"]
    assert [trace.line_of(end["thread"], end["step"]) for end in ends] == [
        end["line"] for end in ends
    ]
    numbers = [trace.number_of(step) for step in range(trace.steps)]
    assert numbers[-1] - numbers[0] > 40
    assert trace.steps == 10
    assert f"steps {numbers[0]} to {numbers[4]} and {numbers[5]} to {numbers[9]}" in str(trace)
    for end in ends:  # in the other rounds of the loop a barrier lies between
        assert trace.values(end["thread"], end["step"])["k"] == 3


def test_several_blocks_have_steps_of_their_own(kernels):
    x, y = X.repeat(2), torch.zeros(256)
    trace = lab.trace(kernels.run_neighbours, x, y, 256, block=[1, 0])
    assert trace.blocks == [(1, 0, 0), (0, 0, 0)]
    other = trace.thread_of((0, 0, 0), 5)
    line = LINES["neighbours"]
    for thread, value in ((5, x[69]), (other, x[5])):
        (step,) = trace.runs_of(line, thread)
        assert trace.values(thread, step)["mine"] == value
    found = [it for it in trace.findings() if it["title"].startswith("race")]
    ends = found[0]["ends"]
    assert {end["block"] for end in ends} == {(0, 0, 0), (1, 0, 0)}
    for end in ends:
        assert trace.line_of(end["thread"], end["step"]) == end["line"]
    report = lab.check(kernels.run_neighbours, x, y, 256)
    number = list(report.findings["kind"]).index("race")
    assert sorted(report.trace(number).blocks) == [(0, 0, 0), (1, 0, 0)]


def test_a_block_is_traced_after_others_have_ended(kernels, tmp_path):
    (tmp_path / "large.cu").write_text(
        "__global__ void large(float* x) { x[threadIdx.x] = threadIdx.x; }\n"
    )
    large = jitload.load(tmp_path / "large.cu", target="cpu").large
    for _ in range(3):
        lab.check(large[4, 128], torch.zeros(128))
        trace = traced(kernels, "wrong_index")
        assert trace.steps > 0
        assert not any(it["title"].startswith("illegal") for it in trace.findings())


def test_a_long_run_is_cut_and_says_so(kernels):
    whole = traced(kernels, "off_by_one")
    line = LINES["off_by_one"]
    assert not whole.is_cut
    part = traced(kernels, "off_by_one", steps=10)
    assert part.is_cut
    assert part.steps == 10
    assert "the rest is left out" in str(part)
    around = traced(kernels, "off_by_one", steps=4, around=line)
    assert around.number_of(0) == whole.runs_of(line)[0] - 1
    step = around.runs_of(line, 0)[0]
    assert around.values(0, step) == whole.values(0, around.number_of(step))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block": 7}, "block: 7"),
        ({"block": (0, 3)}, r"block: \(0, 3\)"),
        ({"launch": 1}, "launch: 1; the call makes 1"),
        ({"around": 1}, "no thread of the block runs line 1"),
        ({"steps": 0}, "steps: 0"),
        ({"finding": 7}, "finding: 7; there are"),
        ({"block": [0, 9]}, "block: 9"),
        ({"block": []}, "block: 0 of them"),
    ],
)
def test_what_there_is_not_is_named(kernels, options, message):
    with pytest.raises(ValueError, match=message):
        traced(kernels, "wrong_index", **options)


def test_a_program_has_a_time_line_in_the_terminal(tmp_path):
    text = SOURCE.read_text() + (
        "int main() { float* x; cudaMallocManaged(&x, 1024);"
        " overflow<<<1, 3>>>(x, x, 3); return cudaDeviceSynchronize(); }\n"
    )
    source = tmp_path / "program.cu"
    source.write_text(text)
    command = [sys.executable, "-m", "lab", "trace", str(source)]
    ran = forks.run(command)
    assert ran.returncode == 0, ran.stderr
    assert f"{LINES['overflow']}" in ran.stdout
    assert "warp 0" in ran.stdout
    at = [*command, "--at", str(LINES["overflow"]), "--thread", "2"]
    said = forks.run(at).stdout
    assert "rows = 100002, columns = 100000, all = 1410265408" in said


def test_copies_phases_and_products_stand_on_the_time_line():
    source = SOURCE.with_name("asynchronous.cu")
    lines = lines_of(source)
    kernel = instrumented(source, trace=True)
    x = torch.arange(512.0) + 1
    traces = {
        name: lab.trace(getattr(kernel, f"run_{name}"), x, torch.zeros(512), 512)
        for name in ("stages", "bulk", "product")
    }
    # Of four copies of a warp each is waited for behind the next one's beginning.
    trace = traces["stages"]
    flights = np.unique(trace.tables["flights"][["round", "until"]])
    assert len(flights) == 4
    awaited = trace.runs_of(lines["awaited"], 0)
    assert flights["until"].tolist() == awaited
    assert (flights["round"][1:] < flights["until"][:-1]).all()
    # An mbarrier is initialised, and has four phases: 512 bytes are announced, and come.
    changes = traces["bulk"].tables["barriers"]
    assert {traces["bulk"].pointer(int(it)) for it in changes["barrier"]} == {"full"}
    assert changes["has_ended"].sum() == 4
    assert changes["bytes"][changes["bytes"] > 0].tolist() == [512] * 4
    assert changes["bytes"].sum() == 0
    # And of a product it is known which lanes have which elements.
    trace = traces["product"]
    (word,) = set(trace.tables["flights"]["word"].tolist())
    assert trace.words[word].startswith("mma.sync m16n8k16 ")
    assert len(trace.tables["flights"]) == 32
    step = trace.runs_of(lines["multiplied"], 3)[0]
    assert trace.values(3, step)["d"] == [x[3] + 16, 16, 16, 16]


@pytest.fixture(scope="module")
def hopper() -> jitload.Kernel:
    return instrumented(SOURCE.with_name("hopper.cu"), trace=True)


def test_a_line_with_nothing_but_a_barrier_is_a_step():
    source = SOURCE.with_name("barriers.cu")
    trace = lab.trace(instrumented(source, trace=True).run, X)
    for name, line in lines_of(source).items():
        for thread in (0, 40):
            runs = trace.runs_of(line, thread)
            assert len(runs) == (3 if name == "loop" else 1), (name, thread)
            assert list(trace.values(thread, runs[0]))[:2] == ["x", "i"]
    ahead = trace.runs_of(lines_of(source)["block"], 40)[0]  # the first warp has a line more
    waiting = [
        (int(it["round"]), int(it["warp"]))
        for it in trace.tables["waits"]
        if trace.words[it["word"]].startswith("__syncthreads")
    ]
    assert waiting[0] == (ahead, 1)


def test_a_kernel_without_shared_arrays_has_none_of_another_kernels(tmp_path):
    source = tmp_path / "two.cu"
    source.write_text("""
    __global__ void reversed(float* x) {
        __shared__ float tile[64];
        tile[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = tile[63 - threadIdx.x];
    }
    __global__ void doubled(float* x) {
        float tile = x[threadIdx.x];
        x[threadIdx.x] = 2 * tile;
    }
    """)
    kernels = instrumented(source, trace=True)
    for name, shared in ("reversed", ["tile"]), ("doubled", []):
        trace = lab.trace(getattr(kernels, name)[1, 64], torch.ones(64))
        assert [it["name"] for it in trace.regions if it["shared"]] == shared


def test_a_kernel_on_the_line_of_its_launch_has_steps(tmp_path):
    (tmp_path / "one.cu").write_text(
        "__global__ void one(float* x) { int i = threadIdx.x; x[i] = 2 * i; }"
        ' extern "C" void run(float* x) { one<<<1, 40>>>(x); }\n'
    )
    kernel = instrumented(tmp_path / "one.cu", trace=True)
    trace = lab.trace(kernel.run, torch.zeros(40))
    assert trace.runs_of(1, 39) == [0]
    assert trace.values(39, 0)["i"] == 39


def test_blocks_of_a_cluster_read_and_write_each_others_shared_memory(hopper):
    x = torch.arange(128.0)
    trace = lab.trace(hopper.run_exchanged, x, torch.zeros(128), 128, block=[2, 3])
    names = [it.get("of") for it in trace.regions if it["shared"]]
    assert sorted(names) == [
        f"{name} of block ({block}, 0, 0)" for name in ("mine", "sent") for block in (2, 3)
    ]
    number = names.index("mine of block (3, 0, 0)")
    shared = [i for i, it in enumerate(trace.regions) if it["shared"]][number]
    touches = trace.tables["touches"]
    readers = trace.tables["steps"]["thread"][
        touches["step"][(touches["region"] == shared) & (touches["how"] == 0)]
    ]
    assert sorted(readers) == list(range(32))  # those of block 2
    line = line_of("hopper.cu", "read")
    for thread in (5, trace.thread_of((3, 0, 0), 5)):
        step = trace.runs_of(line, thread, "hopper.cu")[-1]  # behind what is inlined
        other = (96, 64)[thread > 32] + 5
        assert trace.values(thread, step)["theirs"] == other
    # While the second block runs, the first one waits for it at the cluster's barrier.
    rounds = trace.tables["rounds"]["block"].tolist()
    assert trace.waits(0, rounds.index(1)) == ["barrier.cluster.wait at asynchronous.cuh:167"]
    assert trace.waits(0, trace.runs_of(line, 5, "hopper.cu")[0]) == []
    alone = lab.trace(hopper.run_exchanged, x, torch.zeros(128), 128, block=3)
    assert "mine of another block of the cluster" in [it.get("of") for it in alone.regions]


def test_tensor_maps_and_products_of_warpgroups_stand_on_the_time_line(hopper):
    a, b = torch.randn(64, 128).half(), torch.randn(8, 128).half()
    trace = lab.trace(hopper.run_multiplied, a, b, torch.zeros(512), 128)
    assert not trace.is_cut  # an array of 8192 halves has no step for each
    assert trace.steps < 300
    flights, words = trace.tables["flights"], np.array(trace.words)
    assert not (flights["until"] == 0xFFFFFFFF).any()
    copies = flights[np.char.startswith(words[flights["word"]], "cp.async.bulk.tensor")]
    assert len(copies) == 4  # two in each stage
    products = flights[np.char.startswith(words[flights["word"]], "wgmma.mma_async at")]
    assert len(np.unique(products["until"])) == 4  # of two stages: warps 0 and 1, and the others
    assert len(products) == 2 * 4 * 4  # stages, parts, warps
    changes = trace.tables["barriers"]
    assert sorted({trace.member(int(it)) for it in changes["barrier"]}) == ["full", "full[1]"]
    # What copies and products read is told, of tensors and of shared memory.
    touches = trace.tables["touches"]
    asked = touches["region"][touches["how"] == 4]
    read = {trace.regions[region]["name"]: (asked == region).sum() for region in np.unique(asked)}
    assert read["a"] >= 64
    assert read["b"] >= 8


@pytest.fixture(scope="module")
def of_tensor_memory() -> lab.Trace:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CUDA_ARCH_LIST", "10.0a")
        kernel = jitload.load(SOURCE.with_name("tensor_memory.cu"), target="cpu")
    return lab.trace(kernel.run_multiplied, X, torch.zeros(128), 128)


def test_tensor_memory_is_followed(of_tensor_memory):
    trace, lines = of_tensor_memory, lines_of(SOURCE.with_name("tensor_memory.cu"))
    assert trace.report.findings.empty
    (number,) = [i for i, it in enumerate(trace.regions) if it["name"] == "tensor memory"]
    work, flights = trace.tables["tensor"], trace.tables["flights"]
    said = {
        (trace.words[it["word"]].split(" at ")[0], int(it["first"]), int(it["count"]))
        for it in work
    }
    wanted = {("tcgen05.mma", 0, 16), ("tcgen05.st", 32, 1), ("tcgen05.ld", 3, 1)}
    assert said == wanted
    assert set(work["region"]) == {number}
    # The product is in flight until threads have waited, and then its sums are there.
    (product,) = [it for it in work if it["count"] == 16]
    until = flights[product["flight"]]["until"]
    assert product["round"] < until < trace.runs_of(lines["loaded"], 0)[0]
    touches = trace.tables["touches"]
    memory = np.zeros((128, 512), "f4")
    rounds = []
    for it in touches[(touches["region"] == number) & (touches["how"] == 3)]:
        data = trace.bytes[it["at"] : it["at"] + it["size"]].view("f4")
        memory.reshape(-1)[it["offset"] // 4 :][: len(data)] = data
        rounds.append(int(it["step"]))
    assert max(rounds) == until
    assert (memory[:, :16] == np.outer(X, X[:16])).all()
    assert (memory[:, 32] == X.numpy() + 0.5).all()


@needs_browser
@pytest.mark.browser
def test_tensor_memory_is_drawn(of_tensor_memory, tmp_path):
    trace, lines = of_tensor_memory, lines_of(SOURCE.with_name("tensor_memory.cu"))
    place = trace.save(tmp_path / "trace.html")
    (product,) = [it for it in trace.tables["tensor"] if it["count"] == 16]
    with browser() as started:
        page = started.new_page(viewport={"width": 1400, "height": 2400})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(place.as_uri())
        page.wait_for_function("window.trace")

        def told(step: int, lane: int, column: int) -> str:
            page.fill("#number", str(step))
            page.press("#number", "Enter")
            assert page.evaluate("trace.state.step") == step
            canvas = page.locator("canvas[data-region='tensor memory']")
            canvas.scroll_into_view_if_needed()
            size = canvas.bounding_box()
            x = (column + 0.5) * size["width"] / 33  # columns 0 to 32 are used
            canvas.hover(position={"x": x, "y": (lane + 0.5) * size["height"] / 128})
            return page.locator("#tip").inner_text()

        in_flight = int(product["round"])
        assert "nobody has written it" in told(in_flight, 40, 3)
        assert "in flight: tcgen05.mma" in page.locator(".uses").inner_text()
        assert "writes columns 0 to 15" in page.locator(".uses").inner_text()
        last = trace.runs_of(lines["loaded"], 0)[0]  # the last warp's
        said = told(last, 40, 3)
        assert f"tensor memory[40][3] = {41 * 4}" in said
        assert "written by tcgen05.mma" in said
        assert "of thread 0" in said
        said = told(last, 40, 32)
        assert "= 41.5" in said
        assert "written by tcgen05.st" in said
        assert "of thread 32" in said
        assert page.locator(".uses").inner_text() == "nothing in flight"
        page.screenshot(path=str(tmp_path / "tensor_memory.png"), full_page=True)
        assert not errors


@needs_browser
@pytest.mark.browser
def test_a_finding_opens_its_trace_in_the_checkers_page(kernels, tmp_path):
    """Without a server: at the first access that races, with a button for the other."""
    report = lab.check(kernels.run_missing_barrier, X, torch.zeros(128), 128)
    place = report.save(tmp_path / "check.html")
    trace = report.trace(0)
    with browser() as started:
        page = started.new_page()
        page.goto(place.as_uri())
        page.get_by_text("step through it").first.click()
        inner = page.frame_locator("iframe").first
        inner.locator(".finding.chosen button").first.wait_for()
        frame = page.frames[1]
        frame.wait_for_function("window.trace")
        assert tuple(frame.evaluate("[trace.state.step, trace.state.thread]")) == trace.start
        ends = trace.findings()[trace.finding]["ends"]
        for end, button in zip(ends, inner.locator(".chosen button").all(), strict=True):
            button.click()
            shown = frame.evaluate("[trace.state.step, trace.state.thread]")
            assert shown == [end["step"], end["thread"]]
            assert f"line {end['line']}" in inner.locator("#locals").inner_text()


def test_a_notebook_has_a_button_for_each_finding_with_a_thread(kernels, monkeypatch):
    pytest.importorskip("ipywidgets")
    from IPython.core import getipython

    from lab.checker import links

    report = lab.check(kernels.run_missing_barrier, X, torch.zeros(128), 128)
    assert links.buttons(report) is None  # no notebook
    monkeypatch.setattr(getipython, "get_ipython", lambda: SimpleNamespace(kernel=1))
    row, _ = links.buttons(report).children
    (button,) = row.children  # of the race; y's second half, never written, is no thread's
    assert button.description == "step through it: race (write after read), mistakes.cu:13"
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    button.click()
    assert [type(it) for it in shown] == [lab.Trace]
    assert not button.disabled


@needs_browser
@pytest.mark.browser
def test_the_page_steps_and_jumps(kernels, tmp_path):
    trace = traced(kernels, "missing_barrier")
    place = trace.save(tmp_path / "trace.html")
    assert "http" not in re.sub(r"https?://www.w3.org", "", place.read_text())
    with browser() as started:
        page = started.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(place.as_uri())
        page.wait_for_function("window.trace")

        def rows() -> dict[str, str]:
            cells = page.locator("#locals tr").all()
            return dict(row.locator("td").all_text_contents()[:2] for row in cells)

        def values(thread: int, step: int) -> dict[str, str]:
            found = trace.values(thread, step)
            return {
                name: f"{it:g}" if isinstance(it, float) else str(it) for name, it in found.items()
            }

        steps = [0]
        for _ in range(4):
            page.click("#forward")
            steps.append(steps[-1] + 1)
            assert rows() == values(0, steps[-1])
        page.click("#back")
        assert rows() == values(0, 3)
        page.select_option("#thread", "40")
        assert rows() == values(40, 3)
        ends = [end for it in trace.findings() for end in it["ends"] if end.get("step") is not None]
        for end, button in zip(ends, page.locator(".finding button").all(), strict=True):
            button.click()
            shown = page.evaluate("[trace.state.step, trace.state.thread]")
            assert shown == [end["step"], end["thread"]]
            assert str(end["line"]) in page.locator("#locals").inner_text()
        last = trace.steps - 1
        cell = "trace.data.cell(trace.data.regions.findIndex(r => r.name === 'tile'), 5, STEP)"
        assert page.evaluate(f"({cell}).value".replace("STEP", str(last))) == 6
        assert "value" not in json.loads(
            page.evaluate(f"JSON.stringify({cell})".replace("STEP", "0"))
        )
        assert not errors


def test_mbarriers_have_the_names_of_their_arrays():
    x, w = torch.randn(64, 128).bfloat16(), torch.randn(16, 128).bfloat16()
    trace = lab.trace(lab.ladder("16_steps").ring, x, w, torch.zeros(1024), 128)
    found = {trace.member(int(it)) for it in trace.tables["barriers"]["barrier"]}
    assert found == {"full", "full[1]", "empty", "empty[1]"}
    assert not [name for name, _, _ in trace.variables if name.startswith("__")]


@needs_browser
@pytest.mark.browser
def test_the_page_goes_to_the_next_barrier_and_follows_the_theme(tmp_path):
    source = SOURCE.with_name("barriers.cu")
    trace = lab.trace(instrumented(source, trace=True).run, X)
    stops = [trace.runs_of(lines_of(source)[name], 40)[-1] for name in ("block", "ptx")]
    page_of = trace.save(tmp_path / "trace.html")
    with browser() as started:
        page = started.new_page(color_scheme="light")
        page.goto(page_of.as_uri())
        page.wait_for_function("window.trace")
        seen = []
        while page.locator("#barrier").is_enabled():
            page.click("#barrier")
            seen.append(page.evaluate("trace.state.step"))
        assert set(stops) <= set(seen)
        assert len(seen) >= 7  # of the loop's, the group's and the inlined one, too
        pen = "document.querySelector('#memory canvas').getContext('2d')"
        corner = f"[...{pen}.getImageData(4, 4, 1, 1).data]"
        light = page.evaluate(corner)
        page.emulate_media(color_scheme="dark")
        page.wait_for_function("dark()")
        assert page.evaluate(corner) != light
