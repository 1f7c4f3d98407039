"""make bench without a GPU: what it would measure, the table it keeps, what it writes from it."""

import os
import re
import sys
from argparse import Namespace
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path

import pandas
import pytest
import torch
from jit_cases import wait_for

import lab.bench.__main__ as command
import reference
from lab import rivals
from lab.bench import cells, compiling, measuring, report
from lab.bench.table import CELL, CSV, join, longest_ago, read
from lab.bench.table import CONDITIONS as KEPT_CONDITIONS
from lab.measure.timing import GPU_CLOCK, HOST_CLOCK
from tests.helpers import forks

CONDITIONS = {
    "run": "2030-01-02 03:04",
    "device": "NVIDIA H200",
    "driver": "580.1",
    "cuda": "13.0",
    "torch": "2.11.0",
    "triton": "3.6.0",
    "liger": "0.8.5",
    "quack": None,
    "copy_gb_per_s": 4000.0,
}
TIMES = {"ours": 100.0, "eager": 200.0, "compile": 101.0, "liger": 125.0}


def lines_of(names: list[str], cols: tuple[int, ...] = (1024, 4096), **changes) -> list[dict]:
    """What a run would bring home: ours 2% off the copy, torch.compile level, eager far behind."""
    lines = []
    dtypes = [torch.bfloat16, torch.float32]
    for cell in [*cells.host_cells(names), *cells.cells(names, dtypes, [*cols])]:
        for label, time_us in TIMES.items():
            if label == "liger" and cell.name != "layer_norm":
                continue
            line = cell.columns() | {"implementation": label, "time_us": time_us}
            if cell.shape == cells.HOST_SHAPE:
                line |= {"clock": HOST_CLOCK}
            else:
                speed = 392000.0 / time_us
                line |= {"clock": GPU_CLOCK, "bytes": 392 * 10**6, "gb_per_s": speed}
                line |= {"percent_of_copy": speed / 40}
            lines.append(line | CONDITIONS | changes)
    return lines


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text(f"before\n{report.BEGIN}\nstale\n{report.END}\nafter\n")
    path = tmp_path / "docs" / "bench.csv"
    join(path, lines_of(["square", "layer_norm"]))
    return path


# ---- what is measured


def test_every_op_is_measured_in_both_directions_types_and_all_widths():
    names = [*reference.OPS]
    todo = list(cells.cells(names, [*cells.ELEMENTS], [*cells.COLS]))
    assert {cell.name for cell in todo} == set(names)
    assert min(cells.COLS) == 256
    assert max(cells.COLS) == 262144
    for name in names:
        of_op = [cell for cell in todo if cell.name == name]
        op = reference.OPS[name]
        ways = sum(len(cells.directions(op, options)) for options in cells.variants(op))
        assert len(of_op) == ways * 2 * len(cells.COLS)
    for cell in todo:
        rows, cols = cell.shape
        assert rows * cols == {torch.bfloat16: 2**28, torch.float32: 2**27}[cell.dtype]
    assert str(todo[0]) == f"{names[0]} forward bfloat16 1048576 x 256"


def where(folder: Path) -> str:
    """The process's GPU, when the other process has begun, too: it would leave it no task."""
    (folder / os.environ["CUDA_VISIBLE_DEVICES"]).touch()
    wait_for(lambda: len(list(folder.iterdir())) == 2, "the other process", 300)
    return os.environ["CUDA_VISIBLE_DEVICES"]


@pytest.mark.slow
def test_gpus_share_the_work_and_each_process_sees_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5")
    with compiling.processes(1) as pool:
        assert {*pool.map(where, [tmp_path] * 4)} == {"3", "GPU-5"}
        cell = next(cells.host_cells(["square"]))
        too_late = pool.submit(measuring.measure_until, 0.0, cell, False)
        assert too_late.result() is None


def test_a_gradient_that_is_a_view_is_no_work():
    total = reference.Op("total", lambda x: x.sum(-1), {"x": "rows cols"})
    assert cells.directions(total, {}) == ("forward",)
    scaled = reference.Op("scaled", lambda x: 2 * x.sum(-1), {"x": "rows cols"})
    assert cells.directions(scaled, {}) == ("forward", "backward")


def test_options_that_change_no_tensor_count_once():
    def pick(x, weight=None, p=0.5):
        return x if weight is None else (x, x.sum())

    options = ({"p": 0.1}, {"p": 0.2}, {"weight": None}, {"weight": None, "p": 0.3})
    op = reference.Op("pick", pick, {"x": "rows cols", "weight": "cols"}, options)
    assert cells.variants(op) == [{"p": 0.1}, {"weight": None}]
    assert cells.variants(reference.OPS["reduce_sum"]) == [{"dim": -1}, {"dim": None}]


def test_a_rival_that_computes_something_else_does_not_agree():
    x = torch.randn(64, 64)
    assert measuring.agree((x, x.sum()), ((1.01 * x), x.sum()))
    assert not measuring.agree((x, x.sum()), (x, 2 * x.sum()))
    assert not measuring.agree((x,), (x, x))
    assert not measuring.agree((x,), (x[0],))
    assert not measuring.agree((x / 0,), (x,))


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (
            RuntimeError("\x1b[91m\x1b[1merror\x1b[0m: too wide\nand more"),
            "RuntimeError: error: too wide",
        ),
        (NotImplementedError(), "NotImplementedError"),
    ],
)
def test_of_a_rival_that_fails_one_plain_line_is_kept(
    monkeypatch: pytest.MonkeyPatch, problem: Exception, told: str
):
    def fails(op: reference.Op):
        raise problem

    monkeypatch.setattr(rivals, "RIVALS", {"eager": fails})
    monkeypatch.setattr(rivals, "rivals_of", lambda op: ["eager"])
    monkeypatch.setattr(measuring, "HOST_CALLS", 1)
    cell = cells.Cell("square", {}, "forward", torch.float32, (2, 8))
    ours, eager = measuring.measure_host(cell, {})
    assert ours["time_us"] > 0
    assert "time_us" not in eager
    assert eager["failure"] == told


def test_rivals_are_those_installed():
    op = reference.OPS["square"]
    assert rivals.rivals_of(op)[:2] == ["eager", "compile"]
    for name, version in rivals.versions().items():
        if version is None:
            with pytest.raises(ModuleNotFoundError, match=f"rival {name}: pip install "):
                rivals.RIVALS[name](op)


def test_without_a_gpu_it_says_that_it_needs_one():
    answer = forks.run(
        [sys.executable, "-m", "lab.bench"],
        env=os.environ | {"JITLOAD_TARGET": "cpu"},
        cwd=Path(reference.__file__).parent,
    )
    assert answer.returncode != 0
    assert "make bench needs an NVIDIA GPU" in answer.stderr
    assert "Traceback" not in answer.stderr


# ---- the table on disk


def test_a_second_run_replaces_what_it_measures_again(csv: Path):
    before = read(csv)
    join(csv, [line | {"time_us": 50.0} for line in lines_of(["square"], (4096,))])
    after = read(csv)
    assert len(after) == len(before)
    again = (after["op"] == "square") & (after["cols"] == 4096)
    again |= (after["op"] == "square") & (after["clock"] == HOST_CLOCK)
    assert (after.loc[again, "time_us"] == 50).all()
    pandas.testing.assert_frame_equal(after[~again], before[~again])


def test_other_conditions_are_told_apart(csv: Path):
    before = read(csv)
    join(csv, lines_of(["square"], (4096,), driver="590.2"))
    table = read(csv)
    assert len(table) == len(before) + len(lines_of(["square"], (4096,)))
    newest = report.newest(table)
    assert set(newest["driver"]) == {"590.2"}
    assert set(newest["op"]) == {"square"}
    join(csv, lines_of(["layer_norm"], (1024,)))  # the first conditions again
    assert set(report.newest(read(csv))["driver"]) == {"580.1"}


def test_one_rival_more_is_no_other_run(csv: Path):
    table = read(csv)
    join(csv, lines_of(["square"], cols=(1024,), quack="0.6.5", time_us=50.0))
    again = read(csv)
    assert len(again) == len(table)  # measured again, with one rival more
    assert set(again[again.quack == "0.6.5"].op) == {"square"}
    join(csv, lines_of(["square"], cols=(1024,)))  # and once more, without it
    both = read(csv)
    assert len(both) > len(again)
    shown = report.newest(both)
    assert len(shown) == len(table)
    assert set(shown.quack) == {""}
    join(csv, lines_of(["square"], cols=(1024,), quack="0.6.5"))
    join(csv, lines_of(["layer_norm"], cols=(1024,), quack="0.6.4"))
    join(csv, lines_of(["square"], cols=(4096,)))
    assert set(report.newest(read(csv)).quack) == {"", "0.6.4"}  # and not 0.6.5
    join(csv, lines_of(["square"], cols=(1024,), liger="0.9.0"))
    assert set(report.newest(read(csv)).op) == {"square"}  # another version is another run


def test_a_cell_is_of_one_run(csv: Path):
    again = [
        line | {"run": "2030-01-03 00:00"}
        for line in lines_of(["layer_norm"], (1024,))
        if line["implementation"] != "liger"  # which gave no line this time
    ]
    join(csv, again)
    table = read(csv)
    assert set(table.groupby([*CELL])["run"].nunique()) == {1}
    assert set(table["run"]) == {"2030-01-02 03:04", "2030-01-03 00:00"}


def test_a_run_writes_down_when_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def measured(todo, *_):
        for line in lines_of(["square"], (1024,), run=None):
            yield todo[0], [line]

    monkeypatch.setattr(command, "compile_everything", lambda todo: set())
    monkeypatch.setattr(command, "_measured", measured)
    monkeypatch.setattr(compiling, "gpus", lambda: ["0"])
    path = tmp_path / "bench.csv"
    before = datetime.now(UTC).replace(second=0, microsecond=0)
    asked = {"ops": ["square"], "dtypes": ["float32"], "cols": [1024], "match": ""}
    command.run(Namespace(**asked, no_host=True, random=0, seconds=60.0, csv=path))
    (began,) = set(read(path)["run"])
    assert before <= datetime.fromisoformat(f"{began}+00:00") <= datetime.now(UTC)


class Pool:
    """In the place of a pool of processes: once an op of `breaks` has run, everything fails."""

    made = 0

    def __init__(self, *breaks: str) -> None:
        self.breaks, self.broken = breaks, False
        Pool.made += 1

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *problem: object) -> None:
        pass

    def submit(self, function, deadline, cell, late) -> Future:
        task = Future()
        self.broken |= cell.name in self.breaks
        if self.broken:
            task.set_exception(RuntimeError("CUDA error: an illegal memory access"))
        else:
            task.set_result(lines_of([cell.name], (1024,)))
        return task


def test_what_some_cells_break_the_others_do_not_lose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setattr(Pool, "made", 0)
    monkeypatch.setattr(command, "compile_everything", lambda todo: set())
    monkeypatch.setattr(command, "processes", lambda count: Pool("square", "swiglu"))
    monkeypatch.setattr(command, "as_completed", list)  # in order
    path = tmp_path / "bench.csv"
    ops = ["square", "swiglu", "relu"]
    asked = {"ops": ops, "dtypes": ["float32"], "cols": [1024], "match": "forward"}
    assert command.run(Namespace(**asked, no_host=True, random=0, seconds=60.0, csv=path)) == 1
    assert Pool.made == 5, "of all three, of two, of one; and of each of those to blame"
    assert set(read(path)["op"]) == {"relu"}
    said = capsys.readouterr().out
    for number, op in ((2, "square"), (3, "swiglu")):
        assert f"[{number}/3] {op} forward float32 131072 x 1024 failed: RuntimeError: CUDA" in said


def test_cells_without_figures_come_first_and_then_those_with_the_oldest(csv: Path):
    join(csv, lines_of(["square"], (1024,), run="2030-01-01 by 09:09"))
    asked = {"ops": ["layer_norm", "square"], "dtypes": ["float32"], "cols": [4096, 1024, 256]}
    todo = command.chosen(Namespace(**asked, no_host=True, random=0, match="forward"))
    assert longest_ago(todo, csv.with_name("none.csv")) == todo
    ordered = [f"{cell.name} {cell.shape[1]}" for cell in longest_ago(todo, csv)]
    assert ordered[:3] == ["layer_norm 256", "square 256", "square 1024"]
    assert ordered[3:] == ["layer_norm 4096", "layer_norm 1024", "square 4096"]


def test_a_table_of_before_runs_were_noted_is_read(csv: Path):
    table = pandas.read_csv(csv)
    table["run"] = table["run"].str[:10]
    table.rename(columns={"run": "date"}).to_csv(csv, index=False)
    assert set(read(csv)["run"]) == {"2030-01-02"}


def test_every_figure_that_is_committed_has_its_run():
    table = read(CSV)
    assert table["run"].str.fullmatch(r"\d{4}-\d\d-\d\d (by )?\d\d:\d\d").all()
    assert set(table.groupby([*CELL, *KEPT_CONDITIONS])["run"].nunique()) == {1}


def test_the_table_has_one_order_whatever_the_order_of_the_runs(tmp_path: Path):
    lines = lines_of(["square", "layer_norm"])
    join(tmp_path / "a.csv", lines)
    join(tmp_path / "b.csv", lines[::-1][:30])
    join(tmp_path / "b.csv", lines)
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()


# ---- what is written


@pytest.mark.slow
def test_the_readme_gets_its_totals_between_the_markers(csv: Path):
    report.write(csv)
    text = (csv.parent.parent / "README.md").read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "stale" not in text
    assert (
        "In 0 of 16 cells ours is faster than the best rival by more than 2%, in 16 level" in text
    )
    assert "](docs/bench_forward_bfloat16.svg)" in text
    assert "\n|" not in text
    assert "NVIDIA H200, driver 580.1, CUDA 13.0, torch 2.11.0, triton 3.6.0" in text
    assert "quack" not in text
    assert "triton 3.6.0, 2030-01-02 03:04 UTC, liger 0.8.5, copy 4000 GB/s. Medians" in text
    page = csv.with_suffix(".md").read_text()
    assert "bfloat16, of a copy | bfloat16, of the best rival | float32, of a copy |" in page
    both = "98, 98 at 1024 | 101, 101 at 1024"
    assert f"\n| square | forward | {both} | {both} |\n" in page
    report.write(csv)
    assert (csv.parent.parent / "README.md").read_text() == text


@pytest.mark.slow
def test_a_part_that_is_measured_again_is_told_from_the_rest(csv: Path):
    old = {"run": "2030-01-02 by 09:00"}
    join(csv, lines_of(["layer_norm"], **old))
    # the run that follows: one op, one width, one rival more, slower than before
    slow = lines_of(["layer_norm"], (4096,), run="2030-01-09 10:00", quack="0.6.5")
    for line in slow:
        line |= (
            {"time_us": 150.0, "percent_of_copy": 65.0} if line["implementation"] == "ours" else {}
        )
    join(csv, slow)
    report.write(csv)
    when = "triton 3.6.0; 3 runs, 2030-01-02 03:04 to 2030-01-09 10:00 UTC. Medians, cold L2."
    readme, text = (csv.parent.parent / "README.md").read_text(), csv.with_suffix(".md").read_text()
    assert when in readme
    told = "Liger 0.8.5, quack 0.6.5, copy 4000 GB/s. Within a cell, our figure and its rivals'"
    assert f"{when} {told}" in text
    assert "\n| square | forward | 98, 98 at 1024 | 101, 101 at 1024 |" in text
    assert "\n| layer_norm | forward | 82, 65 at 4096 | 84, 67 at 4096 |" in text
    assert re.search(r"^\| layer_norm \| .* \| 150.0 \(101.0 compile\) \|$", text, re.M)
    shown = pandas.read_csv(csv.with_name(report.CELLS))
    shown = shown[(shown["direction"] == "forward") & (shown["dtype"] == "bfloat16")]
    assert shown[["op", "cols", "percent of the best rival", "run"]].values.tolist() == [
        ["square", 1024, 101.0, "2030-01-02 03:04"],
        ["square", 4096, 101.0, "2030-01-02 03:04"],
        ["layer_norm", 1024, 101.0, "2030-01-02 by 09:00"],
        ["layer_norm", 4096, 67.3, "2030-01-09 10:00"],
    ]
    figure = report.picture(read(csv), "forward", "bfloat16")
    assert figure.get_supxlabel().endswith("cold L2, 3 runs, the last 2030-01-09 10:00 UTC")


@pytest.mark.slow
def test_the_page_and_its_pictures(csv: Path):
    paths = report.write(csv)
    assert all(path.is_file() for path in paths)
    page = csv.with_suffix(".md").read_text()
    assert "## Ops that are bound by traffic" in page
    assert "| square | 100.0 (101.0 compile) | 100.0 (101.0 compile) |" in page
    assert "| layer_norm | 100.0 (101.0 compile) | 100.0 (101.0 compile) |" in page
    for path in paths[2:]:
        assert f"]({path.name})" in page
    assert [path.read_text().startswith("<?xml") for path in paths[2:]] == [True] * 4 + [False]


def test_a_lost_cell_is_counted_and_a_failure_is_told(csv: Path):
    lines = lines_of(["square"], (1024,))
    for line in lines:
        if line["implementation"] == "compile":
            line["time_us"] = 90.0
        if line["implementation"] == "eager":
            line["time_us"] = float("nan")
            line["failure"] = "OutOfMemoryError: too much"
    join(csv, lines)
    report.write(csv)
    page = csv.with_suffix(".md").read_text()
    assert "\n| square | forward | 98, 98 at 1024 | 96, 90 at 1024 |" in page
    text = (csv.parent.parent / "README.md").read_text()
    assert "in 12 level, in 4 slower (at 1024 columns)." in text
    assert "- eager, square, 6 cells: OutOfMemoryError: too much" in page
    join(csv, [line | {"op": "layer_norm"} for line in lines])
    report.write(csv)
    page = csv.with_suffix(".md").read_text()
    assert "- eager, square, layer_norm, 12 cells: OutOfMemoryError: too much" in page


def test_a_cell_in_which_a_rival_was_not_timed_is_not_won(csv: Path):
    lines = lines_of(["square"], (1024,))
    for line in lines:
        if line["implementation"] == "compile":
            line |= {"time_us": float("nan"), "failure": "TimeoutError: not compiled after 70 s"}
    join(csv, lines)
    report.write(csv)
    text = csv.with_suffix(".md").read_text()
    cells = pandas.read_csv(csv.with_name(report.CELLS))
    late = cells[cells["op"].eq("square") & cells["dtype"].eq("bfloat16") & cells["cols"].eq(1024)]
    assert late["not timed"].tolist() == ["compile"] * 2
    assert late["best rival"].tolist() == ["eager"] * 2
    assert "In 0 of 12 cells" in text
    assert "Not counted: 4, where a rival was not timed." in text


def test_a_panel_for_each_op_with_the_line_of_the_copy(csv: Path):
    figure = report.picture(read(csv), "forward", "bfloat16")
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["square", "layer_norm"]
    for panel, rival in zip(figure.axes, (None, "liger"), strict=True):
        handles, labels = panel.get_legend_handles_labels()
        expected = ["ours", "eager", "compile", *filter(None, [rival]), "copy, 4000 GB/s"]
        assert labels == expected
        assert list(handles[0].get_xdata()) == [1024, 4096]
        assert list(handles[0].get_ydata()) == [3920, 3920]
        assert panel.get_ylim() == (0, pytest.approx(1.12 * 4000))
    assert "NVIDIA H200, driver 580.1" in figure.get_supxlabel()


def test_a_rival_beyond_the_copy_stays_in_the_picture(csv: Path):
    table = read(csv)
    table.loc[table["implementation"] == "compile", "gb_per_s"] = 5200.0
    panel = report.picture(table, "forward", "bfloat16").axes[0]
    assert panel.get_ylim()[1] > 5200


def test_a_readme_without_markers_is_left_alone(csv: Path):
    readme = csv.parent.parent / "README.md"
    readme.write_text("nothing")
    with pytest.raises(ValueError, match="wanted are the two lines"):
        report.write(csv)
    assert readme.read_text() == "nothing"
