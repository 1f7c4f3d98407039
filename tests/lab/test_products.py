"""make bench's products: what is measured, how calls take turns, and what is written of it."""

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pandas
import pytest
import torch

import jitload
import lab.bench.__main__ as command
from docs.programs import products as matmul_page
from lab import rivals
from lab.bench import compiling, in_turns, measuring, product_picture, products, report
from lab.bench import prepared_products as prepared
from lab.bench.in_turns import measure_product
from lab.bench.product import module_of
from lab.bench.product_tables import product_score
from lab.bench.table import CELL, join, read
from lab.measure import turns
from lab.measure.clocks import Held
from lab.measure.timing import HOST_CLOCK, TURNS_CLOCK, Timing
from lab.rivals.implementation import Implementation

DEVICE = jitload.device()
CONDITIONS = {
    "run": "2030-01-02 03:04",
    "device": "NVIDIA H200",
    "driver": "580.1",
    "cuda": "13.0",
    "torch": "2.11.0",
    "triton": "3.6.0",
    "copy_gb_per_s": 4000.0,
}
TINY = {
    "matmul": products.matmul(torch.float32, "fused", 4, 8, 16, bias=True, act="swiglu"),
    "attention": products.attention(torch.float32, "backward", 1, 2, 8, 8, causal=True),
    "rope": products.rope(torch.float32, "backward", 1, 8, 8, heads=2, kv_heads=1),
    "attention_decode": products.decode(torch.float32, 2, 16, 8, heads=2, kv_heads=1),
    "attention_varlen": prepared.packed_sequences(torch.float32, "backward", 8, 3, 8, width=16),
    "matmul_w8a16": prepared.w8a16(torch.bfloat16, 4, 16, 64),
    "matmul_fp8": prepared.matmul_fp8(torch.bfloat16, "blocks", 4, 8, 256),
    "matmul_block_scaled": prepared.matmul_block_scaled(torch.bfloat16, "nvfp4", 4, 8, 256),
    "grouped_matmul": prepared.grouped_matmul(
        torch.bfloat16, "backward", 20, 3, 16, 32, act="swiglu"
    ),
    "linear_cross_entropy": prepared.loss(torch.float32, "both", 8, 16, 40),
    "rms_norm_fp8": prepared.rms_norm_fp8(torch.bfloat16, "1x128", 4, 256),
    "swiglu_fp8": prepared.swiglu_fp8(torch.bfloat16, "row", 4, 256),
}
each_op = pytest.mark.parametrize("name", TINY)


# ---- what is measured


def test_the_sizes_are_those_of_models_and_each_has_a_line_of_its_own():
    todo = list(products.products(products.NAMES))
    kinds = Counter((it.name, it.kind, it.direction) for it in todo)
    assert kinds == {
        ("matmul", "cube", "forward"): 4,
        ("matmul", "model", "forward"): 15,
        ("matmul", "fused", "forward"): 14,
        ("matmul", "few rows", "forward"): 9,
        **{
            ("attention", kind, direction): count
            for kind, count in {"causal": 14, "full": 12}.items()
            for direction in ("forward", "backward")
        },
        ("rope", "halves", "forward"): 2,
        ("rope", "halves", "backward"): 2,
        ("attention_decode", "one query", "forward"): 6,
        ("attention_varlen", "causal", "forward"): 4,
        ("attention_varlen", "causal", "backward"): 4,
        ("matmul_fp8", "rows", "forward"): 15,
        ("matmul_fp8", "blocks", "forward"): 15,
        ("matmul_fp8", "rows, fast sums", "forward"): 15,
        ("matmul_block_scaled", "mxfp8", "forward"): 3,
        ("matmul_block_scaled", "nvfp4", "forward"): 3,
        ("grouped_matmul", "uneven", "forward"): 3,
        ("grouped_matmul", "uneven", "backward"): 3,
        ("matmul_w8a16", "few rows", "forward"): 6,
        ("matmul_w8a16", "rows", "forward"): 2,
        ("linear_cross_entropy", "mean", "forward"): 5,
        ("linear_cross_entropy", "mean", "both"): 5,
        **{
            (name, f"scales of {scaling}", "forward"): 2
            for name in ("rms_norm_fp8", "swiglu_fp8")
            for scaling in ("row", "1x128")
        },
    }
    keys = {tuple((it.columns() | {"clock": TURNS_CLOCK})[name] for name in CELL) for it in todo}
    assert len(keys) == len(todo) == len({str(it) for it in todo})
    assert {it.rows for it in todo if it.name == "attention"} == {512 << i for i in range(6)}
    assert str(todo[0]) == "matmul, cube forward 4096 x 4096, units=4096"


def test_kernels_are_built_before_anything_is_measured():
    for name in ("matmul_fp8", "rms_norm_fp8", "swiglu_fp8"):
        compiling._build(name)
        assert hasattr(module_of(name), name)


def test_operations_are_those_of_the_products_alone():
    cube, *_ = products.products(["matmul"])
    assert cube.operations == 2 * 4096**3
    full = products.attention(torch.bfloat16, "forward", 2, 3, 32, 64, causal=False)
    causal = products.attention(torch.bfloat16, "backward", 2, 3, 32, 64, causal=True)
    assert full.operations == 2 * 2 * 2 * 3 * 32 * 32 * 64
    assert causal.operations == 2.5 * full.operations / 2
    assert products.decode(torch.bfloat16, 1, 32, 64).operations == 0
    assert prepared.loss(torch.bfloat16, "forward", 2, 3, 5).operations == 2 * 2 * 3 * 5
    assert prepared.loss(torch.bfloat16, "both", 2, 3, 5).operations == 3 * 2 * 2 * 3 * 5


def test_both_directions_are_one_step(monkeypatch):
    monkeypatch.setattr(in_turns, "rivals_of", lambda product: [])
    forward = []
    function = products.OPS["linear_cross_entropy"].function

    def counted(x, w, target):
        forward.append(x.requires_grad and w.requires_grad)
        return function(x, w, target)

    ours = Implementation("ours", counted, ours=True)
    monkeypatch.setattr(products.Product, "ours", lambda self: (ours, "counted"))
    measure_product(TINY["linear_cross_entropy"], CONDITIONS, rounds=3)
    assert len(forward) >= 4
    assert all(forward)


def test_bytes_have_scales_and_blocks_lie_as_cublaslt_wants_them():
    for scales, shape in (("rows", (4, 1)), ("blocks", (4, 2))):
        (case,) = prepared.matmul_fp8(torch.bfloat16, scales, 4, 8, 256).cases()
        assert [*case.inputs] == ["x", "x_scale", "w", "w_scale"]
        assert case.inputs["x"].dtype == torch.float8_e4m3fn
        assert case.inputs["x_scale"].shape == shape
    assert case.inputs["x_scale"].stride() == (1, 4)


@each_op
def test_everybody_gets_the_same_tensors_and_ours_agrees(name, monkeypatch):
    monkeypatch.setattr(in_turns, "rivals_of", lambda product: ["eager"])
    ours, eager = measure_product(TINY[name], CONDITIONS, rounds=2)
    assert "failure" not in eager
    for line in (ours, eager):
        assert line["time_us"] > 0
        assert line["op"] == name
        assert line["bytes"] > 0
        assert line["turn"] == ("graph" if DEVICE.type == "cuda" else "calls")
        assert line["device"] == "NVIDIA H200"
    assert ours["version"] == TINY[name].ours()[1]
    assert ("plain_us" in ours) == (name == "matmul")  # where something is fused


def test_bytes_of_rope_backward_leave_out_what_it_need_not_read():
    rope = TINY["rope"]
    case, *_ = rope.cases()  # on a GPU as many as its cache cannot hold
    gradients, tables = 1 * 8 * 4 * 8, 2 * 8 * 4
    assert sum(t.numel() for t in rope.reads(case)) == gradients + tables


def test_few_rows_and_caches_are_cold_and_large_products_are_not():
    cold = {(it.name, it.kind) for it in products.products(products.NAMES) if it.cold}
    assert cold == {
        ("matmul", "few rows"),
        ("rope", "halves"),
        ("attention_decode", "one query"),
        ("matmul_w8a16", "few rows"),
        ("rms_norm_fp8", "scales of row"),
        ("rms_norm_fp8", "scales of 1x128"),
        ("swiglu_fp8", "scales of row"),
        ("swiglu_fp8", "scales of 1x128"),
    }


def test_packed_sequences_fill_the_tokens_and_their_pairs_count():
    product = prepared.packed_sequences(torch.bfloat16, "forward", 8, 4, 64)
    ends = product.case().inputs["cu_seqlens_q"]
    assert ends.tolist() == [0, 4, 16, 20, 32]
    assert product.operations == 2 * (2 * 16 + 2 * 144) * 2048
    assert {it.rows for it in prepared.packed(torch.bfloat16)} == {16384}


def test_experts_have_unequal_shares_of_all_rows():
    product = prepared.grouped_matmul(torch.bfloat16, "forward", 1000, 8, 16, 32)
    ends = product.case().inputs["offsets"]
    assert ends[-1] == 1000
    assert len(ends.diff().unique()) > 5
    assert product.operations == 2 * 1000 * 16 * 32


def test_a_rival_that_has_its_gradients_in_forward_is_timed_in_both_passes_alone():
    product = TINY["linear_cross_entropy"]
    rival = Implementation("early", product.op.function, gradients_in_forward=True)
    case = product.case()
    _, gradients = case.start(rival, both=True)
    assert [gradient.shape for gradient in gradients] == [(8, 16), (40, 16)]
    with pytest.raises(NotImplementedError, match="early's linear_cross_entropy has no backward"):
        case.start(rival)


def test_the_host_is_timed_in_a_call_with_gradients_too(monkeypatch):
    monkeypatch.setattr(measuring, "HOST_CALLS", 1)
    monkeypatch.setattr(rivals, "rivals_of", lambda op: ["eager"])
    dtype = torch.float32
    todo = list(products.host_products(products.NAMES, dtype))
    names = ["matmul", "attention", "attention_varlen", "rope", "linear_cross_entropy"]
    assert [(it.name, it.direction) for it in todo] == [
        (name, direction) for direction in ("forward", "both") for name in names
    ]
    for product in todo:
        assert product.on_host
        for line in measuring.measure_host(product, CONDITIONS):
            assert line["time_us"] > 0


def test_cold_calls_go_through_several_sets_of_tensors(monkeypatch):
    few = products.matmul(torch.float32, "few rows", 1, 8, 16)
    cases = [few._case(seed) for seed in range(3)]
    monkeypatch.setattr(products.Product, "cases", lambda self: cases)
    seen = []

    def watched(op):
        def function(x, w):
            seen.append(w.data_ptr())
            return op.function(x, w)

        return Implementation("watched", function)

    monkeypatch.setitem(rivals.RIVALS, "watched", watched)
    monkeypatch.setattr(in_turns, "rivals_of", lambda product: ["watched"])
    _, line = measure_product(few, CONDITIONS, rounds=5)
    assert "failure" not in line
    weights = [case.inputs["w"].data_ptr() for case in cases]
    first = weights.index(seen[-6])
    assert seen[-6:] == (weights * 3)[first : first + 6]


# ---- rivals that fail


def test_a_rival_that_fails_does_not_lose_the_others(monkeypatch):
    calls = Counter()

    def rival(name, function):
        monkeypatch.setitem(rivals.RIVALS, name, lambda op: Implementation(name, function))

    def fails_later(q, k, v):
        calls["later"] += 1
        if calls["later"] > 3:
            raise RuntimeError("out of luck\nand more")
        return in_turns.rivals.RIVALS["eager"](products.OPS["attention_decode"]).function(q, k, v)

    def fails(q, k, v):
        raise NotImplementedError("no such kernel")

    def no_library(op):
        raise ModuleNotFoundError("rival absent: pip install absent")

    rival("at once", fails)
    rival("wrong", lambda q, k, v: q + 100)
    rival("later", fails_later)
    monkeypatch.setitem(rivals.RIVALS, "absent", no_library)
    labels = ["at once", "wrong", "later", "absent", "eager"]
    monkeypatch.setattr(in_turns, "rivals_of", lambda product: labels)
    lines = measure_product(TINY["attention_decode"], CONDITIONS, rounds=3)
    failures = {line["implementation"]: line.get("failure") for line in lines}
    assert failures == {
        "ours": None,
        "at once": "NotImplementedError: no such kernel",
        "wrong": "ArithmeticError: its results are not ours",
        "later": "RuntimeError: out of luck",
        "absent": "ModuleNotFoundError: rival absent: pip install absent",
        "eager": None,
    }
    assert all("time_us" not in line for line in lines if "failure" in line)


def test_what_ours_raises_is_no_rivals_failure(monkeypatch):
    def broken(self):
        raise ZeroDivisionError

    monkeypatch.setattr(products.Product, "ours", broken)
    with pytest.raises(ZeroDivisionError):
        measure_product(TINY["matmul"], CONDITIONS, rounds=1)


# ---- turns


def test_calls_take_turns_and_the_first_round_does_not_count():
    order = []
    players = {name: turns.Player(lambda name=name: order.append(name), calls=4) for name in "abc"}
    times, failures = turns.take_turns(players, torch.device("cpu"), rounds=9)
    rounds = ["".join(order[i : i + 3]) for i in range(0, len(order), 3)]
    assert len(rounds) == 10
    assert {"".join(sorted(names)) for names in rounds} == {"abc"}
    assert {names[0] for names in rounds} == set("abc")  # nobody is always the first
    assert list(times) == list("abc")
    assert not failures
    assert {timing.clock for timing in times.values()} == {"CPU"}
    assert all(timing.median >= 0 for timing in times.values())


def test_a_time_is_of_one_call_and_not_of_a_turn(monkeypatch):
    monkeypatch.setattr(turns, "_seconds", lambda turn, device: turn())
    seconds = iter([1000.0, 8.0, 12.0, 16.0])
    players = {"a": turns.Player(lambda: next(seconds), calls=4)}
    times, _ = turns.take_turns(players, torch.device("cpu"), rounds=3)
    timing = times["a"]
    assert (timing.median, timing.lower, timing.upper) == (3.0, 2.5, 3.5)


def test_who_fails_in_a_turn_has_no_further_one():
    calls = Counter()

    def fails():
        calls["fails"] += 1
        raise ValueError("no")

    players = {"good": turns.Player(lambda: None), "bad": turns.Player(fails)}
    times, failures = turns.take_turns(players, torch.device("cpu"), rounds=3)
    assert list(times) == ["good"]
    assert str(failures["bad"]) == "no"
    assert calls["fails"] == 1


def test_on_the_host_a_turn_is_many_calls():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    times, failures = turns.take_turns_on_host(calls, count=2, rounds=1)
    assert order[::2] == order[1::2]
    assert Counter(order) == {"a": 4, "b": 4}
    assert not failures
    assert {timing.clock for timing in times.values()} == {"host"}


class FakeStream:
    def __init__(self, device=None) -> None:
        pass

    def wait_stream(self, stream) -> None:
        pass

    def synchronize(self) -> None:
        pass


class FakeEvent:
    """An event of a GPU on which only `GPU.step` takes time."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.milliseconds = GPU.milliseconds

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: "FakeEvent") -> float:
        return end.milliseconds - self.milliseconds


class FakeGraph:
    def __init__(self) -> None:
        self.calls = 0

    def replay(self) -> None:
        GPU.milliseconds += 2.0 * self.calls


class GPU:
    """Calls of 2 ms, and a graph that counts those made while it captures."""

    milliseconds = 0.0
    capturing: FakeGraph | None = None

    @staticmethod
    def step() -> None:
        if GPU.capturing:
            GPU.capturing.calls += 1
        else:
            GPU.milliseconds += 2.0

    @staticmethod
    @contextmanager
    def graph(graph: FakeGraph, stream: FakeStream) -> Iterator[None]:
        GPU.capturing = graph
        try:
            yield
        finally:
            GPU.capturing = None


@pytest.fixture
def gpu(monkeypatch):
    fakes = {"Stream": FakeStream, "Event": FakeEvent, "CUDAGraph": FakeGraph, "graph": GPU.graph}
    fakes |= {"current_stream": FakeStream, "stream": nullcontext, "synchronize": lambda it: None}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(turns, "Watch", lambda device: nullcontext_with_held())
    return torch.device("cuda")


def nullcontext_with_held() -> nullcontext:
    watch = nullcontext()
    watch.held = None
    return watch


def test_on_a_gpu_a_turn_is_a_graph_of_as_many_calls_as_take_20_ms(gpu):
    player = turns.prepare(lambda: GPU.step, gpu)
    assert (player.calls, player.captured) == (10, True)
    times, _ = turns.take_turns({"a": player}, gpu, rounds=3)
    assert times["a"].median == pytest.approx(2e-3)
    assert times["a"].clock == TURNS_CLOCK


def test_what_a_graph_reads_is_there_as_long_as_who_replays_it(gpu):
    """Backward passes read what their forward passes saved, which nobody else holds."""

    def start() -> turns.Step:
        saved = torch.ones(3)
        gone.append(weakref.ref(saved))

        def step() -> float:
            GPU.step()
            return saved.sum().item()

        return step

    gone: list[weakref.ref] = []
    player = turns.prepare(start, gpu)
    gc.collect()
    assert player.captured
    assert gone[0]() is not None
    del player
    gc.collect()
    assert gone[0]() is None


def test_what_cannot_be_captured_is_called_as_often(gpu):
    def step() -> None:
        if GPU.capturing:
            raise RuntimeError("operation not permitted when stream is capturing")
        GPU.step()

    player = turns.prepare(lambda: step, gpu)
    assert (player.calls, player.captured) == (10, False)
    times, _ = turns.take_turns({"a": player}, gpu, rounds=3)
    assert times["a"].median == pytest.approx(2e-3)


# ---- what is chosen


def asked(**changes) -> SimpleNamespace:
    every = {"ops": ["relu", "matmul", "rope"], "dtypes": ["bfloat16"], "cols": [1024]}
    return SimpleNamespace(**every | {"no_host": True, "match": ""} | changes)


def test_products_are_chosen_by_op_and_by_text():
    todo = command.chosen(asked())
    assert list(dict.fromkeys(cell.name for cell in todo)) == ["relu", "matmul", "rope"]
    few = command.chosen(asked(match="few rows"))
    assert {cell.kind for cell in few} == {"few rows"}
    assert {cell.name for cell in command.chosen(asked(dtypes=["float32"]))} == {"relu"}
    assert {cell.name for cell in command.chosen(asked(ops=["relu"]))} == {"relu"}


# ---- what is written


def lines(names=products.NAMES, **changes) -> list[dict]:
    """What a run would bring home: ours level with the best rival, and throttled."""
    found = []
    for product in products.products(list(names)):
        for label, time_us in {"ours": 100.0, "eager": 99.0, "quack": 150.0}.items():
            line = product.columns() | {"implementation": label, "clock": TURNS_CLOCK}
            line |= {"time_us": time_us, "bytes": 10**8, "percent_of_copy": 2500 / time_us}
            if product.operations:
                line |= {"operations": product.operations, "tflops": 60000 / time_us}
            line |= {"mhz": 1410.0, "throttled": "the power cap"}
            line["turn"] = "calls" if label == "quack" else "graph"
            line["peak_bytes"] = 2 * 10**9
            if label == "ours" and product.plain:
                line["plain_us"] = 96.0
            found.append(line | CONDITIONS | changes)
    return found


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text(f"before\n{report.BEGIN}\n{report.END}\nafter\n")
    return tmp_path / "docs" / "bench.csv"


@pytest.mark.slow
def test_a_run_of_products_alone_has_its_page(csv):
    join(csv, lines())
    assert len(read(csv)) == len(lines())
    report.write(csv)
    page = csv.with_suffix(".md").read_text()
    assert (csv.parent / report.PRODUCTS).exists()
    assert f"]({report.PRODUCTS})" in page
    assert "\n## Products, in turns\n" in page
    assert "| 8192 x 4096 | classes=32000 | forward | 2000 | 2000 | 2000 |" in page
    total = "| matmul, forward | cube | 4 | 0 | 4 | 0 | 99.0% | 99.0% | "
    assert f"\n{total}4096 x 4096, units=4096 (eager) |\n" in page
    for title in ("attention, backward", "rope, forward"):
        assert f"\n| {title} | " in page
    assert page.index("| attention, forward") < page.index("| attention_decode, forward")
    assert f"]({report.PRODUCT_LINES})" in page
    shapes = csv.with_name(report.PRODUCT_LINES).read_text()
    assert len(shapes.splitlines()) == 1 + len(read(csv).groupby([*CELL]))
    assert 'matmul,forward,4096 x 4096,"cube, float16",units=4096,' in shapes
    assert (
        "matmul,forward,4096 x 4096,cube,units=4096,600 TFLOPS,99.0,eager,,"
        '"1410 MHz, the power cap","eager 606, quack 400 by calls",'
    ) in shapes
    assert '"units=4096, residual",600 TFLOPS,99.0,eager,+4.2%,"1410' in shapes
    assert "matmul,forward,1 x 4096,few rows,units=4096,25% of a copy,99.0,eager," in shapes
    assert "deep_gemm for matmul, matmul_fp8 (the one release on PyPI" in page
    readme = (csv.parent.parent / "README.md").read_text()
    assert "matmul 99% (at the lowest 99%, 42 shapes); linear_cross_entropy 99%" in readme
    assert "; attention 99%" in readme


def test_a_lost_product_is_not_bold_and_a_failure_is_told(csv):
    told = lines(["rope"])
    for line in told:
        if line["implementation"] == "eager":
            line["time_us"] = 50.0
        if line["implementation"] == "quack":
            line |= {"time_us": float("nan"), "failure": "RuntimeError: no"}
        line["mhz"] = float("nan")
        line["throttled"] = ""
    join(csv, told)
    report.write(csv)
    page = csv.with_suffix(".md").read_text()
    assert "| rope, forward | halves | 2 | 0 | 0 | 2 | 50.0% | 50.0% | 4096 x " in page
    shape = '"batch=4, heads=32, kv_heads=8",25% of a copy,50.0,eager,,,eager 25%,'
    assert shape in csv.with_name(report.PRODUCT_LINES).read_text()
    assert "- quack, rope, 4 cells: RuntimeError: no" in page


def test_products_stand_beside_the_other_ops_and_out_of_their_score(csv):
    join(csv, lines(["rope"]))
    before = report.newest(read(csv))
    relu = {"op": "relu", "options": "", "direction": "forward", "dtype": "bfloat16"}
    relu |= {"cols": 1024, "rows": 4, "clock": "GPU, cold L2", "percent_of_copy": 98.0}
    join(
        csv,
        [
            relu | {"implementation": name, "time_us": 10.0, "gb_per_s": 4000.0} | CONDITIONS
            for name in ("ours", "eager")
        ],
    )
    report.write(csv)
    page = csv.with_suffix(".md").read_text()
    assert "In 0 of 1 cells ours is faster than the best rival by more than 2%, in 1 level" in page
    assert "| rope, forward |" in page
    after = report.newest(read(csv))
    pandas.testing.assert_frame_equal(
        after[after["op"] == "rope"].reset_index(drop=True),
        before.reset_index(drop=True),
        check_dtype=False,
    )


def test_a_second_run_is_told_in_a_column(csv):
    join(csv, lines(["rope"]))
    join(csv, lines(["attention_decode"], run="2030-01-03 00:00"))
    report.write(csv)
    runs = pandas.read_csv(csv.with_name(report.PRODUCT_LINES)).groupby("op")["run"].unique()
    assert runs["rope"].tolist() != runs["attention_decode"].tolist() == ["2030-01-03 00:00"]


def test_without_a_rivals_time_there_is_no_score():
    table = pandas.DataFrame(lines(["rope"]))
    alone = table[table["implementation"] == "ours"]
    assert product_score(alone).startswith("Of products there")
    assert product_picture.product_picture(alone) is None


def test_the_host_s_time_of_products_has_its_shape_beside_it(csv):
    told = []
    for product in products.host_products(["matmul"]):
        for label in ("ours", "eager"):
            line = product.columns() | {"implementation": label, "clock": HOST_CLOCK}
            told.append(line | {"time_us": 20.0} | CONDITIONS)
    relu = {"op": "relu", "options": "", "direction": "both", "dtype": "float32"}
    relu |= {"cols": 1024, "rows": 64, "clock": HOST_CLOCK, "implementation": "ours"}
    join(csv, [*told, relu | {"time_us": 10.0} | CONDITIONS])
    report.write(csv)
    page = csv.with_suffix(".md").read_text()
    assert "\n## The host's time for a call at 64 x 1024, float32\n" in page
    assert "| matmul, 64 x 128, bfloat16, units=128, bias | 20.0 (20.0 eager) |" in page


def test_the_page_of_matmul_has_its_versions_and_types():
    slow = Timing(0.5, 0.4, 0.6, TURNS_CLOCK)
    fast = Timing(2e-4, 2e-4, 2e-4, TURNS_CLOCK, Held(1545))
    ladder = {"naive": slow, "tiles": fast}
    types = {torch.float32: {"ours": slow, "eager": fast}}
    text = matmul_page.text(CONDITIONS, ladder, types)
    assert text.startswith("NVIDIA H200, driver 580.1, torch 2.11.0, 4096 x 4096 x 4096, in turns.")
    assert "| naive | 0.3 | |\n| tiles | 687 | 1545 MHz |" in text
    assert text.endswith("| float32 | 0.3 | 687 | 0.0% | |")


def test_each_version_of_matmul_has_its_turn():
    times = matmul_page.versions(16)
    assert list(times) == [*matmul_page.VERSIONS]
    assert all(timing.median > 0 for timing in times.values())
    for both in matmul_page.types(16).values():
        assert list(both) == ["ours", "eager"]
