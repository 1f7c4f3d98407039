"""What follows a kernel's files: versions, steps, and a process that survives every kernel."""

import io
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from queue import Queue
from xml.etree import ElementTree

import pytest
import torch
from followed import Followed
from jit_cases import write

import jitload
import lab
import reference
from lab.measure.error import Error
from lab.watcher import page, text
from lab.watcher.files import SourceFiles, changes_between
from lab.watcher.follower import Follower, State
from lab.watcher.history import History
from lab.watcher.launched import launched
from lab.watcher.picture import linear_scale, log_scale, picture
from lab.watcher.result import (
    Checked,
    Failure,
    Finding,
    Measured,
    Opened,
    Predicted,
    Result,
    Version,
)
from lab.watcher.settings import Settings, settings_for, shapes_for
from lab.watcher.terminal import Lines, watch

NAN = float("nan")
PATIENCE = 300  # seconds for a process that begins, and compiles, beside other tests


def error(value):
    return Error(value, value, value, value)


VERSIONS = ("naive", "vector")
MEASURED = Measured(error(0.5), error(0.5), 12.0, "CPU simulator", NAN)


# ---- settings


def test_settings_say_what_is_wrong_with_them():
    op = reference.OPS["layer_norm"]
    settings = settings_for(op, (64, 96), torch.bfloat16, True, "vector", None)
    assert settings == Settings((64, 96), "bfloat16", True, "vector", {})
    assert str(settings) == "64 x 96, bfloat16, backward, vector"
    default = shapes_for(op, jitload.default_target())[0]
    assert settings_for(op, None, "float32", False, None, None) == Settings(default)
    for shape, dtype, version, said in (
        ((4,), "float32", None, r"^shape: \(4,\)"),
        ((4, 4), "int7", None, "^dtype: there is no 'int7'"),
        ((4, 4), "float32", "vectors", "^version: there is no 'vectors'; there is naive, block"),
        ((4, 4), "float32", 3, "^version: 3 is of type int"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            settings_for(op, shape, dtype, False, version, None)


def test_a_check_has_fewer_rows():
    assert Settings((1 << 20, 1024)).for_check().shape == (64, 1024)
    assert Settings((3, 1 << 20)).for_check().shape == (1, 1 << 20)
    assert Settings((3, 5)).for_check() == Settings((3, 5))


# ---- files


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("JITLOAD_CACHE", str(tmp_path / "cache"))  # nothing is built here
    return write(tmp_path / "k.cu", '#include "k.h"\n// 1\n')


def files_of(source):
    return SourceFiles(Followed(source).recipes(), [source.with_suffix(".py")])


def looks(files, times=3):
    return [files.look() for _ in range(times)]


def test_a_change_counts_once_and_when_it_has_stood_for_a_look(source):
    files = files_of(source)
    assert looks(files) == [False, False, False]
    source.write_text("// half wr")
    assert not files.look()
    source.write_text("// half written")
    assert looks(files) == [False, True, False]
    assert files.contents[source] == b"// half written"


def test_headers_and_modules_count_and_a_touch_does_not(source):
    files = files_of(source)
    os.utime(source)
    assert not any(looks(files))
    write(source.with_name("k.h"), "// found now")
    assert looks(files) == [False, True, False]
    write(source.with_suffix(".py"), "VERSIONS = ()")
    assert looks(files) == [False, True, False]


def test_a_file_that_is_gone_for_a_moment_is_no_change(source):
    files = files_of(source)
    held = source.read_text()
    source.unlink()
    assert not any(looks(files))
    source.write_text(held)
    assert not any(looks(files))


def test_what_changes_while_other_recipes_are_taken_up_counts(source):
    files = files_of(source)
    source.write_text("// 2")
    files.follow(Followed(source).recipes())
    assert looks(files) == [True, False, False]


def test_changes_name_the_files_and_count_lines(tmp_path):
    a, b = tmp_path / "a.cu", tmp_path / "b.cuh"
    old, new = {a: b"1\n2\n3\n", b: b"same"}, {a: b"1\n3\n4\n5\n", b: b"same"}
    assert changes_between(old, new) == "a.cu +2 −1"
    assert changes_between(old, old) == ""


# ---- history


TWO_VERSIONS = """
__device__ float shared_by_both(float x) {
    return x;
}
__global__ void __launch_bounds__(256) forward_naive(const float* x, float* y) {
    y[0] = shared_by_both(x[0]);
}
__device__ void tail(const float* x, float* y) {
    y[1] = x[1];
}
__global__ void forward_vector(const float* x, float* y) {
    tail(x, y);
}
"""


@pytest.mark.parametrize(
    ("old", "measured", "others"),
    [
        ("y[0] = shared", "vector", ["naive"]),
        ("y[0] = shared", "naive", []),
        ("tail(x, y);", "naive", ["vector"]),
        ("return x;", "vector", []),  # not of one version
        ("y[1] = x[1];", "vector", []),
    ],
)
def test_an_edit_of_another_version_than_the_measured_one_is_told(tmp_path, old, measured, others):
    path = tmp_path / "k.cu"
    history = History()
    history.version_of({path: TWO_VERSIONS.encode()})
    edited = history.version_of({path: TWO_VERSIONS.replace(old, f"// mine\n    {old}").encode()})
    state = State("", Result(edited, Settings((1, 1), version=measured)), (), None, VERSIONS)
    assert state.untouched_by == others
    said = text.untouched(state)
    assert (f"is {measured}, whose own kernels it did not touch" in said) == bool(others)
    assert f"measured: <b>{measured}</b>" in page.status("op", state)


def test_a_large_error_in_ulp_of_a_right_result_is_explained():
    near_zero = Measured(Error(3e-7, 0, 4533, 0), Error(2e-7, 0, 3100, 0), 1.0, "", NAN)
    assert "at results near zero" in text.error(near_zero)
    assert "near zero" not in text.error(MEASURED)


def test_versions_are_told_apart_by_content(tmp_path):
    history, path = History(), tmp_path / "k.cu"
    numbers = [history.version_of({path: data}).number for data in (b"1", b"2", b"1", b"3")]
    assert numbers == [1, 2, 1, 3]


def test_ghosts_are_of_the_same_settings_and_the_pinned_one_stays():
    history, path = History(), Path("k.cu")
    for number in range(1, 12):
        result = Result(history.version_of({path: bytes([number])}), Settings(), measured=MEASURED)
        history.note(result)
    history.note(Result(history.version_of({path: b"else"}), Settings((2, 2)), measured=MEASURED))
    history.pinned = history.versions[1]
    assert [ghost.version.number for ghost in history.ghosts(result)] == [2, 5, 6, 7, 8, 9, 10]


def test_going_back_keeps_what_the_files_hold_now(tmp_path):
    history, path, other = History(), tmp_path / "k.cu", tmp_path / "k.h"
    other.write_text("header")
    for held in ("first", "second"):
        path.write_text(held)
        history.version_of({path: held.encode(), other: b"header"})
    path.write_text("third, not seen yet")
    now = {path: b"third, not seen yet", other: b"header"}
    assert history.restore(1, now) == ["k.cu"]
    assert path.read_text() == "first"
    assert history.restore(3, now) == ["k.cu"]
    assert path.read_text() == "third, not seen yet"
    with pytest.raises(LookupError, match="there is no 4; there are 1 to 3"):
        history.restore(4, now)


# ---- text


def test_a_summary_says_what_is_known():
    version = Version(2, None, "k.cu +1 −1")
    wrong = Finding("race", True, "k.cu", 7, "x[0] = i;", "write after write")
    result = Result(version, None, Opened(2.04, True), MEASURED, Checked((wrong,), 30, 20))
    assert text.summary(result) == (
        "k.cu +1 −1; built in 2.0 s; right: error 0.5 ULP (PyTorch's 0.5);"
        " 1.50 times the floor of 20 bytes; 1 finding"
    )
    off = Measured(error(4530), error(0.5), 12.0, "CPU simulator", NAN)
    assert text.error(off) == "wrong: error 4,530 ULP (PyTorch's 0.5)"
    assert text.finding(wrong) == "k.cu:7: race: write after write\n    x[0] = i;"
    on_gpu = Measured(None, None, 2500.0, "GPU, cold L2", 91.23, "throttled")
    predicted = Predicted(12.04, 10.0, 14.0, 61.5, "H200", True)
    said = text.summary(replace(result, predicted=predicted))
    assert said.endswith("1 finding; predicted for H200: 12 µs (90%: 10 to 14 µs), 62% of copy")
    unsure = text.predicted(replace(predicted, high_us=20.0, certain=False))
    assert unsure == "predicted for H200: somewhere from 10 to 20 µs, measure this"
    failed = Failure("hung", "did not return")
    result = Result(version, None, Opened(0.01, False), on_gpu, None, failed)
    assert text.summary(result) == (
        "k.cu +1 −1; opened from the cache in 10 ms; hung; 2.5 ms, 91.2% of copy (throttled)"
    )


@pytest.mark.parametrize(
    ("ours", "torchs", "right"),
    [
        (3.0, 1.0, True),
        (3.1, 1.0, False),
        (0.5, 0.0, True),
        (177.0, 1946.0, True),
        (2.0, 0.0, True),
        (NAN, 1.0, False),
        (9.0, NAN, False),
    ],
)
def test_an_error_like_pytorchs_is_right(ours, torchs, right):
    assert Measured(error(ours), error(torchs), 1.0, "", NAN).is_right is right


def test_without_a_truth_nothing_is_wrong():
    assert Measured(None, None, 1.0, "", NAN).is_right


# ---- the whole of it, with a subject that needs no compiler


@contextmanager
def following(source, seconds=10.0):
    states = Queue()
    follower = Follower(Followed(source), Settings(), states.put, seconds)
    follower.start()
    try:
        yield follower, states
    finally:
        follower.close()
        follower.join()


def state_with(states, is_wanted):
    """The next state for which is_wanted is true."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        state = states.get(timeout=PATIENCE)
        if is_wanted(state):
            return state
    pytest.fail("no such state")


def end_of(states, number):
    """The state in which all is known of a version."""
    return state_with(states, lambda it: not it.doing and it.result.version.number == number)


def test_saved_broken_mended_and_back(source):
    with following(source) as (follower, states):
        first = end_of(states, 1).result
        assert first.measured.error.max_ulp == 1
        assert bool(first.predicted) is (jitload.default_target() == "cpu")
        assert end_of_choices(states, follower) == ("naive", "best")
        source.write_text("// broken 2")
        broken = end_of(states, 2)
        assert (broken.result.failure.kind, broken.result.failure.line) == ("compile", 1)
        assert [ghost.version.number for ghost in broken.ghosts] == [1]
        source.write_text("// raise 2")
        raised = end_of(states, 3).result
        assert raised.failure.text == "ValueError: x: wrong shape"
        assert raised.checked, "the checker may know why"
        assert not raised.predicted
        worker = follower._worker
        source.write_text("// 2")
        assert end_of(states, 4).result.measured.error.max_ulp == 2
        assert worker is follower._worker, "none has to begin anew, which takes seconds"
        assert worker
        follower.pin()
        assert follower.go_back(1) == ["k.cu"]
        first = end_of(states, 1)
        assert first.result.measured.error.max_ulp == 1
        assert first.pinned.number == 4
        follower.choose(Settings((2, 2)))
        assert end_of(states, 1).ghosts == ()


def end_of_choices(states, follower):
    follower.pin()
    choices = states.get(timeout=PATIENCE).choices
    follower.pin()
    states.get(timeout=PATIENCE)
    return choices


@pytest.mark.slow
def test_no_kernel_runs_beside_a_cell(source):
    source.write_text("// slow 1")
    with following(source) as (follower, states):
        state_with(states, lambda it: it.doing == "measuring")
        follower.begin_cell()
        waiting = state_with(states, lambda it: it.doing == "waiting for the cell to end")
        assert waiting.result.measured is None
        time.sleep(1)
        assert all(not it.result.measured for it in [waiting, *states.queue])
        follower.end_cell()
        end = end_of(states, 1).result
        assert end.measured
        assert not end.failure


@pytest.mark.slow
def test_a_process_that_hangs_or_crashes_is_replaced(source):
    with following(source, seconds=1.0) as (_, states):
        end_of(states, 1)
        source.write_text("// hang 2")
        hung = end_of(states, 2).result
        assert hung.failure.kind == "hung"
        assert hung.checked
        source.write_text("// crash 2")
        crashed = end_of(states, 3).result
        assert crashed.failure.kind == "crashed"
        assert "SIGABRT" in crashed.failure.text
        source.write_text("// 2")
        assert end_of(states, 4).result.measured.error.max_ulp == 2


# ---- the terminal


def test_a_terminal_has_a_line_for_each_version(tmp_path):
    stream = io.StringIO()
    lines = Lines(stream)

    version = Version(1, datetime(2026, 1, 1, 12, 30))
    failure = Failure("compile", "k.cu:1: error: no semicolon", "k.cu", 1)
    lines(State("building", Result(version, Settings())))
    for _ in range(2):
        lines(State("", Result(version, Settings(), failure=failure)))
    assert stream.getvalue() == (
        "  1  12:30:00  does not compile\n     k.cu:1: error: no semicolon\n"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [(["nothing"], "there is no 'nothing'"), (["square", "--dtype", "int7"], "no 'int7'")],
)
def test_watch_refuses_what_it_cannot_follow(given, said, capsys):
    with pytest.raises(SystemExit):
        watch(given)
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_watch_goes_on_until_ctrl_c_and_leaves_no_process(cache):
    command = [sys.executable, "-m", "lab", "watch", "square", "--shape", "8", "128"]
    environment = os.environ | {"JITLOAD_CACHE": str(cache), "JITLOAD_TARGET": "cpu"}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline().startswith("square, 8 x 128, float32, forward")
        assert "no findings" in process.stdout.readline()
        (worker,) = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert not Path(f"/proc/{worker}").exists()
    finally:
        process.kill()
        process.communicate()


def children_of(pid):
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [child for each in threads for child in (each / "children").read_text().split()]


# ---- the panel


def cpu_result(number, off=0.5, fetched=1000, settings=None, kinds=()):
    findings = tuple(Finding(kind, True, "k.cu", 1, "", "") for kind in kinds)
    return Result(
        Version(number, datetime(2026, 1, 1, 12, number)),
        settings,
        Opened(0.1, True),
        Measured(error(off), error(0.5), 10.0, "CPU simulator", NAN),
        Checked(findings, fetched, 1000),
    )


def test_a_picture_has_a_row_for_each_version():
    ghosts = [cpu_result(1), cpu_result(2, 4530, 3000), cpu_result(3, float("inf"))]
    svg = ElementTree.fromstring(picture(cpu_result(4, 0.0), ghosts, ghosts[0].version))
    texts = [text.text for text in svg.iter("text")]
    assert texts[:4] == ["4", "3", "2", "★ 1"]
    assert {"0", "inf", "4,530", "0.5", "1.00", "3.00"} <= {*texts}
    widths = [float(bar.get("width")) for bar in svg.iter("rect") if bar.get("height") == "12"]
    assert widths[2] == pytest.approx(3 * widths[0], abs=0.2)
    assert widths[0] == widths[1] == widths[3]


def test_a_picture_has_percent_of_copy_on_a_gpu_and_no_bar_for_what_did_not_end():
    on_gpu = replace(
        cpu_result(1), measured=Measured(error(0.5), error(0.5), 34.06, "GPU, cold L2", 91.24)
    )
    assert "91.2%, 34.06 µs" in picture(on_gpu, [])
    assert 'height="12"' not in picture(cpu_result(1, kinds=["timeout"]), [])
    said = replace(cpu_result(1), predicted=Predicted(12.04, 10.0, 14.0, 61.5, "H200", True))
    assert "1.00, predicted 12 µs" in picture(said, [])
    assert "<svg" in picture(Result(Version(1, datetime.now()), None), [])


@pytest.mark.parametrize("values", [[0.5], [0.0], [float("nan")], [1e-3, 1e9], [37000.0]])
def test_scales_have_ticks_and_keep_values_inside(values):
    for scale in (log_scale(values), linear_scale(values, 1.0), linear_scale([480.0], 1.0)):
        assert 2 <= len(scale.ticks()) <= 7
        assert all(0 <= scale.at(value) <= 290 for value in values)


class FakeLive:
    name = "square"

    def __init__(self):
        self.history, self.done = History(), []

    def __getattr__(self, name):
        return lambda *given: self.done.append((name, *given))


def test_a_panel_shows_states_and_passes_on_what_is_chosen(tmp_path):
    pytest.importorskip("ipywidgets", reason="ipywidgets is not installed")
    from lab.watcher.panel import Panel

    live, path = FakeLive(), tmp_path / "k.cu"
    for held in (b"1", b"2", b"3"):
        live.history.version_of({path: held})
    panel = Panel(live, Settings((64, 1024)))
    failure = Failure("compile", "k.cu:3: error: a < b", "k.cu", 3)
    result = Result(live.history.versions[2], Settings((64, 1024)), failure=failure)
    panel.show(State("", result, (cpu_result(1),), choices=("naive", "vector")))
    assert "version 3" in panel._status.value
    assert "k.cu:3: error: a &lt; b" in panel._details.value
    assert [number for _, number in panel._back.options] == [2, 1]
    assert live.done == [], "showing chooses nothing"
    panel._version.value = "naive"
    panel._direction.value = True
    chosen = Settings((64, 1024), backward=True, version="naive")
    assert live.done[-1] == ("choose", chosen)
    panel._go_back(None)
    assert live.done[-1] == ("go_back", 2)
    panel.show(State("building", replace(result, failure=None), choices=("naive", "vector")))
    assert panel._version.value == "naive"
    panel._version.value = "the best"
    assert live.done[-1] == ("choose", replace(chosen, version=None))
    assert panel._details.value == ""


def test_options_are_a_control_where_an_op_has_several():
    pytest.importorskip("ipywidgets", reason="ipywidgets is not installed")
    from lab.watcher.panel import Panel

    live = FakeLive()
    live.name = "reduce_sum"
    settings = Settings((3, 5), options={"dim": None})
    panel = Panel(live, settings)
    assert panel._shape.value == (3, 5)
    assert [text for text, _ in panel._options.options] == ["dim=None", "dim=-1"]
    panel._options.value = {"dim": -1}
    assert live.done == [("choose", replace(settings, options={"dim": -1}))]


def test_a_call_of_ones_own_has_a_panel_without_controls():
    pytest.importorskip("ipywidgets", reason="ipywidgets is not installed")
    from lab.watcher.panel import Panel

    panel = Panel(FakeLive(), None)
    panel.show(State("", cpu_result(1)))
    assert len(panel._box.children) == 4


# ---- lab.live


@pytest.mark.parametrize(
    ("given", "options", "error", "said"),
    [
        (["nothing"], {}, ValueError, "there is no 'nothing'"),
        (["square", abs], {}, TypeError, "call: square is an op"),
        (["square"], {"shape": (4,)}, ValueError, r"shape: \(4,\)"),
        (["square"], {"seconds": 0}, ValueError, "seconds: 0"),
    ],
)
def test_live_names_the_argument_that_is_wrong(given, options, error, said):
    with pytest.raises(error, match=said):
        lab.live(*given, **options)


@pytest.mark.slow
def test_a_call_of_ones_own_is_followed(tmp_path, in_scratch):
    pytest.importorskip("cloudpickle", reason="cloudpickle is not installed")
    code = "__global__ void twice(const float* x, float* y, int n) {\n"
    code += "    y[threadIdx.x] = 2 * x[threadIdx.x];\n}\n"
    source = write(tmp_path / "mine.cu", code)
    mine = jitload.load(source, target="cpu")

    def twice(x):
        y = torch.empty_like(x)
        mine.twice[1, x.numel()](x, y, x.numel())
        return y

    live = lab.live(mine, twice, inputs=torch.arange(64.0), truth=lambda x: 2 * x)
    try:
        first = wait_for(live, lambda it: it.predicted)
        assert 2 < first.predicted.time_us < 10  # a launch
        assert first.measured.error == first.measured.torch_error == error(0.0)
        assert first.checked.times_floor == 1
        write(source, code.replace("y[threadIdx.x]", "y[threadIdx.x + 1]"))
        wrong = wait_for(live, lambda it: it.version.number == 2 and it.checked)
        assert "writes index 64 of y" in wrong.failure.text
        (finding,) = [it for it in wrong.checked.findings if it.kind == "out of bounds"]
        assert (finding.line, finding.source) == (2, "y[threadIdx.x + 1] = 2 * x[threadIdx.x];")
        assert "version 2: mine.cu +1 −1; built in" in repr(live)
        live = lab.live(mine, twice, inputs=torch.arange(64.0))  # it takes up the history
        wait_for(live, lambda it: it.version.number == 2)
        assert live.go_back(1) == ["mine.cu"]
        assert source.read_text() == code
        again = wait_for(live, lambda it: it.version.number == 1 and it.checked)
        assert again.measured.error is None
    finally:
        live.close()


def wait_for(live, is_wanted):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if live.result and is_wanted(live.result):
            return live.result
        time.sleep(0.05)
    pytest.fail(repr(live))


# ---- what kernels take, from a trace as PyTorch writes it on a GPU


def test_what_a_launched_kernel_takes(monkeypatch):
    anonymous = "void (anonymous namespace)::forward<float, true>(float const*, float*)"
    events = [
        {"name": "void at::native::fill<int>(int)", "args": {"block": [32, 1, 1]}},
        {"name": anonymous, "args": {"block": [128, 2, 1], "shared memory": 16384}},
        {"name": anonymous, "args": {"block": [64, 1, 1], "shared memory": 0}},
    ]
    monkeypatch.setattr("lab.watcher.launched._launches", lambda call: events)

    class Kernel:
        def resources(self, *, whole):
            assert not whole, "it would wait for kernels that nobody has launched"
            return [jitload.Use("forward<float, true>", "sm_90", 40, 8, 0)]

    (use,) = launched(lambda: None, [Kernel()])
    assert (use.threads, use.registers, use.spilled) == (256, 40, 8)
    assert use.occupancy == 0.75  # by registers: six blocks
    assert text.use(use) == (
        "forward<float, true>: 40 registers, 8 bytes spilled, occupancy 75% of 256 threads"
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_the_profiler_tells_which_kernels_run():
    from kernels.square import kernel, square

    x = torch.ones(1 << 20, device="cuda")
    (use,) = launched(lambda: square(x), [kernel])
    assert use.kernel == "forward_vector<float>"
    assert use.occupancy > 0.5
