"""lab.tune: constants declared as tunable, tried, judged, measured, and kept."""

import json
import math
import subprocess
import sys
import time

import pytest
import torch
from jit_cases import write

import jitload
import lab
from docs.programs import tuned
from docs.programs.page import rows_of
from lab.tuner import measures
from lab.tuner.candidate import Candidate
from lab.tuner.judge import Judge
from lab.tuner.measures import Times
from lab.tuner.model import search_among
from lab.tuner.run import _built, _kernel, _run, _worth_running, declared_values
from lab.tuner.search import search
from lab.tuner.space import Space
from lab.tuner.tuning import Tuning
from toolchain import tuning as tables

TWICE = """
#include "tunable.h"
constexpr int kThreads = TUNABLE(kThreads, 64);
constexpr int kEach = TUNABLE(kEach, 4);
constexpr int kApart = TUNABLE(kApart, 1);  // 0: neighbours read neighbours; 2: and write nonsense
constexpr int kLanes = 32;
static_assert(kEach > 0);
__global__ void twice(const float* x, float* y, int n) {
    for (int k = 0; k < kEach; ++k) {
        const int t = (blockIdx.x * kEach + k) * kThreads + threadIdx.x;
        const int i = kApart == 1 ? t % kLanes * ((n + kLanes - 1) / kLanes) + t / kLanes : t;
        if (i < n) y[i] = kApart == 2 ? 0 : 2 * x[i];
    }
}
"""


@pytest.fixture(scope="module")
def twice(cache, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JITLOAD_CACHE", str(cache))
        source = write(tmp_path_factory.mktemp("tune") / "twice.cu", TWICE)
        yield jitload.load(source, target="cpu")


def call_of(twice, n):
    x = torch.arange(1, n + 1, dtype=torch.float32)

    def run(kThreads, kEach):
        y = torch.empty_like(x)
        twice.twice[-(-n // (kThreads * kEach)), kThreads](x, y, n)
        return y

    return run


@pytest.fixture(scope="module")
def call(twice):
    return call_of(twice, 1000)


# ---- what is declared


def test_a_constant_is_the_sources_or_the_compilers(twice):
    assert jitload.tunables([TWICE]) == {"kThreads": "64", "kEach": "4", "kApart": "1"}
    assert jitload.tunables(["// int k = TUNABLE(k, 1);"]) == {}
    assert jitload.tunables(["constexpr int k = TUNABLE(\n k, sizeof(T) == 2 ? f(2) : 8);"]) == {
        "k": "sizeof(T) == 2 ? f(2) : 8"
    }
    assert declared_values(twice) == {"kThreads": 64, "kEach": 4, "kApart": 1}


def test_a_variant_runs_in_the_place_of_the_kernel_and_only_meanwhile(twice):
    x, y = torch.ones(64), torch.zeros(64)
    taken, before = twice.twice, twice.build
    with jitload.running_variant(twice, {"kApart": 2}):
        taken[1, 64](x, y, 64)
        assert y.sum() == 0
    taken[1, 64](x, y, 64)
    assert y.sum() == 128
    assert twice.build is before
    with pytest.raises(ArithmeticError), jitload.running_variant(twice, {"kApart": 2}):
        raise ArithmeticError
    taken[1, 64](x, y.zero_(), 64)
    assert y.sum() == 128


@pytest.mark.slow  # it builds an op anew
def test_a_variant_has_the_formulas_of_the_kernel():
    from kernels.scale_bias_relu import kernel, scale_bias_relu

    x = torch.randn(4, 8, device=kernel.target, requires_grad=True)
    scale, bias = torch.ones(8, device=x.device), torch.zeros(8, device=x.device)
    with jitload.running_variant(kernel, {"kUnroll": 1}):
        y = scale_bias_relu(x, scale, bias)
        y.sum().backward()
    assert torch.equal(x.grad, (x > 0).float())
    assert not torch.equal(y, torch.zeros_like(y))


# ---- the whole


@pytest.fixture(scope="module")
def told(twice):
    """With what a rule allows, a result that is wrong, and one that does not compile."""

    def rule(kThreads, kEach):
        return kThreads * kEach <= 256

    values = {"kThreads": [64, 128], "kEach": [-1, 1, 4], "kApart": [0, 1, 2]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jitload, "cuda_home", lambda: None)  # alike on every machine
        patch.setattr(twice, "for_gpu", lambda compile=True: None)
        return lab.tune(call_of(twice, 1 << 18), kernel=twice, rule=rule, **values)


def test_without_a_gpu_it_says_first_that_times_are_predicted(twice, capsys):
    call = call_of(twice, 65536)

    def alike(kThreads):
        print("the call runs")
        return call(kThreads, 4)

    tuning = lab.tune(alike, kernel=twice, kThreads=[64, 128])
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert "nothing is timed: times are predicted for H200" in first
    assert first.endswith("; 2 configurations")
    assert second == "the call runs"
    assert "all 2 configurations take as long, within 2%" in repr(tuning)


def test_ones_own_kernel_is_led_to_a_tunable_constant_and_a_result(twice, call):
    with pytest.raises(ValueError, match=r'#include "tunable.h" and constexpr int kMine = TUN'):
        lab.tune(call, kernel=twice, kMine=[1, 2])
    with pytest.raises(TypeError, match=r"it returns nothing; wanted is the tensor .* return y"):
        lab.tune(lambda kThreads: [call(kThreads, 4)].clear(), kernel=twice, kThreads=[64])


@pytest.mark.slow
def test_on_a_cpu_predicted_times_decide(told):
    assert told.best["kApart"] == 0
    assert told.gain > 0.3  # for whole sectors
    assert (told.configurations, told.runs) == (15, 6)
    refused = told.table[told.table["kApart"] == 2]["refused"]
    assert refused.str.startswith(("wrong: ", "CompileError")).all()
    assert told.table["refused"].str.contains("CompileError").sum() == 6
    assert math.isinf(told.table["cost"].iloc[-1])
    assert told.table.attrs["unit"] == "µs"
    said, measure, *_ = repr(told).splitlines()
    assert said.startswith("twice, predicted for H200: kThreads=")
    assert measure.startswith("Measure this: not known is machine code, for want of nvcc")
    assert "predicted time" in told.plot().axes[-1].get_ylabel()
    with pytest.raises(RuntimeError, match="nothing to keep: times were predicted"):
        told.keep()


@pytest.mark.slow
def test_a_figure_shows_every_configuration_that_ran(told):
    heat, parallel, _ = told.plot(rows="kEach", columns="kApart").axes
    assert [text.get_text() for text in heat.get_yticklabels()] == ["1", "4"]
    assert len(heat.texts) == 4
    lines = [line for line in parallel.lines if len(line.get_xdata()) == 3]
    assert len(lines) == 6
    assert lines[-1].get_linewidth() > lines[0].get_linewidth()
    with pytest.raises(ValueError, match="columns: 'kNone' is no constant of kThreads, kEach"):
        told.plot(columns="kNone")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "constants: there are none"),
        ({"kThreads": 64}, "kThreads: 64 is of type int; wanted is a list"),
        ({"kThreads": []}, "kThreads: the list is empty"),
        ({"kThreads": [64.0]}, "kThreads: 64.0 is of type float"),
        ({"kNone": [1]}, "kNone: no loaded kernel declares kNone as tunable"),
        ({"kThreads": [64], "rule": 3}, "rule: 3 is of type int"),
        ({"kThreads": [64], "rule": lambda kOther: True}, "rule: it takes 'kOther'"),
        ({"kThreads": [64], "rule": lambda kThreads: False}, "rule: it allows none"),
        ({"kThreads": [64], "runs": 0}, "runs: 0; wanted is a positive"),
        ({"kThreads": [64], "kernel": "twice"}, "kernel: 'twice' is of type str"),
        ({"kThreads": [64], "truth": {"other": None}}, "truth: there is no call 'other'"),
    ],
)
def test_a_wrong_argument_is_named(twice, call, given, message):
    given = {"kernel": twice, **given} if "kNone" not in given else given
    with pytest.raises((TypeError, ValueError), match=message.split(";")[0]):
        lab.tune(call, **given)


def test_the_kernel_is_the_only_one_that_declares_the_constants(
    twice, cache, tmp_path, monkeypatch
):
    monkeypatch.setenv("JITLOAD_CACHE", str(cache))
    copy = jitload.load(write(tmp_path / "twice.cu", TWICE), target="cpu")
    monkeypatch.setattr(jitload, "loaded", lambda: [twice])
    assert _kernel(None, ["kEach", "kApart"]) is twice
    monkeypatch.setattr(jitload, "loaded", lambda: [twice, copy])
    with pytest.raises(ValueError, match=r"twice \(.*tune.*twice\.cu\), twice \(.*; give the one"):
        _kernel(None, ["kEach", "kApart"])
    assert _kernel(copy, ["kEach"]) is copy


def test_a_call_has_to_be_one():
    with pytest.raises(TypeError, match="wanted is a function"):
        lab.tune({"a": 3}, kThreads=[1])
    with pytest.raises(ValueError, match="call: the dict is empty"):
        lab.tune({}, kThreads=[1])


# ---- times


@pytest.fixture
def times(twice, call):
    """The way of a GPU, with the simulator's times."""
    return Times(twice, {"call": call}, {"kThreads": 64, "kEach": 4}, False, lambda _: None, 0.0)


class Inline:
    """Builds nothing ahead: who runs a variant builds it."""

    def build(self, recipes, done):
        return dict.fromkeys(recipes, "")


def quiet(text):
    pass


def tried(times, configurations):
    candidates = _built(times, configurations, Inline(), quiet)
    _run(times, candidates, quiet)
    return candidates


def test_configurations_take_turns_beside_the_kernel_as_it_stands(times, monkeypatch):
    """The clock says that kEach=1 takes half as long, and that of a round all drift alike."""
    order = []

    def taken(call, *_):
        kEach = call.keywords["kEach"]
        order.append(kEach)
        held_up = 3 if len(order) in (2, 5) else 1  # the fast one once, and the standing one once
        return measures_timing(1e-6 * (1 + len(order) / 1000) * (1 if kEach == 1 else 2) * held_up)

    monkeypatch.setattr(measures, "take_time", taken)
    times.begin({"call": None})
    fast, same, _ = tried(times, [{"kEach": each} for each in (1, 4, 2)])
    assert order[:4] == [4, 1, 4, 2]
    assert order[4:8] == order[:4]
    # the others are out after two rounds
    assert order[8:] == [4, 1] * (measures.ROUNDS - measures.TRIES)
    assert fast.cost == pytest.approx(0.5, rel=0.01)
    assert same.cost == pytest.approx(1, rel=0.01)
    assert len(fast.samples["call"]) == measures.ROUNDS


def measures_timing(seconds):
    from lab.measure.timing import GPU_CLOCK, Timing

    return Timing(seconds, seconds, seconds, GPU_CLOCK)


def test_what_is_wrong_or_raises_is_not_timed(times, monkeypatch):
    monkeypatch.setattr(measures, "take_time", lambda *_: measures_timing(1e-6))
    times.begin({"call": lambda: 2 * torch.arange(1, 1001).double()})
    wrong, broken, right = tried(times, [{"kApart": 2}, {"kThreads": -1}, {"kEach": 1}])
    assert wrong.refused.startswith("wrong: ")
    assert broken.refused
    assert not right.refused
    assert not wrong.samples
    assert not broken.samples


def use(spilled=0, registers=32, shared=0):
    return jitload.Use("twice", "sm_90", registers, spilled, shared)


def test_what_spills_or_cannot_be_launched_is_not_run(times, monkeypatch):
    built = {"now": [use()]}
    monkeypatch.setattr(measures.jitload, "uses", lambda log: built["now"], raising=False)
    times.begin({"call": None})
    built["now"] = [use(spilled=8), use()]
    times.look_at(spills := Candidate({"kEach": 1}))
    assert spills.refused == "spills 8 bytes of registers"
    built["now"] = [use(registers=255)]
    times._threads, times._least = lambda constants: 1024, 0.5
    times.look_at(large := Candidate({"kEach": 1}))
    assert large.refused == "no kernel of it fits with 1024 threads a block"
    built["now"] = [use(registers=64, shared=120 << 10)]
    times._threads = lambda constants: 128
    times.look_at(sparse := Candidate({"kEach": 1}))
    assert sparse.refused == "its occupancy is 6% at most"
    assert sparse.registers == 64
    refused = []
    assert _worth_running(times, [{"kEach": 1}], refused, Inline(), quiet) == []
    assert [each.refused for each in refused] == ["its occupancy is 6% at most"]


# ---- right and wrong


def test_without_a_truth_sums_in_another_order_are_right():
    sums = torch.tensor([1000.0, -3.0])
    judge = Judge("call", sums, None)
    assert judge.wrong(sums + torch.tensor([1e-3, 1e-3])) == ""
    assert judge.wrong(sums + 1).startswith("wrong: 1 off")
    assert judge.wrong(torch.tensor([math.nan, -3.0])).startswith("wrong: inf")
    assert "shapes" in judge.wrong(sums[:1])


def test_with_a_truth_the_error_may_be_twice_that_of_the_kernel():
    true = torch.tensor([1.0], dtype=torch.float64)
    eps = torch.finfo(torch.float32).eps
    judge = Judge("call", torch.tensor([1 + eps]), lambda: true)
    assert judge.wrong(torch.tensor([1 + 2 * eps])) == ""
    assert judge.wrong(torch.tensor([1 + 3 * eps])) == "wrong: 3 ULP off"
    with pytest.raises(TypeError, match="it returns a value of type float"):
        Judge("call", 1.0, None)
    with pytest.raises(ValueError, match="infinitely far"):
        Judge("call", torch.tensor([math.inf]), true)


# ---- the search


@pytest.fixture
def bowl():
    """A space, and costs that are least, 1, at a=8, b=2, c=2; it knows what ran."""
    values = {"a": [1, 2, 4, 8, 16, 32], "b": [1, 2, 4, 8, 16, 32], "c": [0, 1, 2, 3, 4, 5]}

    def costs(configurations):
        costs.ran += [tuple(it.values()) for it in configurations]
        return [
            1 + abs(math.log2(it["a"]) - 3) + abs(math.log2(it["b"]) - 1) + 0.5 * (it["c"] - 2) ** 2
            for it in configurations
        ]

    costs.ran = []
    return Space.of(values, lambda a, b: a * b <= 512), costs


def test_a_search_finds_the_best_in_few_runs(bowl):
    pytest.importorskip("optuna")
    space, costs = bowl
    search(space, 60, 4, costs)
    assert len(costs.ran) == len(set(costs.ran)) == 60  # none twice
    names = list(space.values)
    assert min(costs([dict(zip(names, each, strict=True)) for each in costs.ran[:60]])) <= 2


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("standing", [{"a": 1, "b": 32, "c": 5}, {"a": None, "b": 1, "c": 9}, None])
def test_a_model_finds_the_best_in_fewer(bowl, batch, standing):
    space, costs = bowl
    search_among(space, space.configurations(), 20 * batch, batch, costs, standing)
    assert len(costs.ran) == len(set(costs.ran)) == 20 * batch
    assert (8, 2, 2) in costs.ran


def test_a_model_learns_nothing_of_what_cannot_be_used(bowl):
    space, costs = bowl

    def some(configurations):
        every = zip(configurations, costs(configurations), strict=True)
        return [cost if it["b"] < 8 else math.inf for it, cost in every]

    search_among(space, space.configurations(), 25, 1, some, {"a": 32, "b": 1, "c": 0})
    assert (8, 2, 2) in costs.ran


def test_a_search_ends_when_all_have_run():
    pytest.importorskip("optuna")
    ran = []
    space = Space.of({"a": [1, 2], "b": [1, 2]}, None)
    search(space, 100, 3, lambda some: ran.extend(some) or [math.inf] * len(some))
    assert len(ran) == 4
    search_among(space, ran[:4], 100, 3, lambda some: ran.extend(some) or [math.inf] * len(some))
    assert len(ran) == 8


def test_without_optuna_a_search_says_how_to_get_it(monkeypatch, twice, call):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setattr("lab.tuner.run.RUNS", 3)
    with pytest.raises(ModuleNotFoundError, match="pip install optuna"):
        lab.tune(call, kernel=twice, runs=2, kThreads=[32, 64], kEach=[1, 2])


# ---- tables


def test_a_table_is_read_back_and_others_stay():
    text = tables.with_section("", "NVIDIA H200", {"kEach": 2}, {'a "b"': (2.0, 1.5)})
    text = tables.with_section(text, "NVIDIA A100", {"kEach": 8}, {"call": (1, 1)})
    text = tables.with_section(text, "NVIDIA H200", {"kThreads": 128}, {"call": (3.0, 2.0)})
    assert tables.tuned_constants(text, "NVIDIA H200") == {"kEach": 2, "kThreads": 128}
    assert tables.tuned_constants(text, "NVIDIA A100") == {"kEach": 8}
    assert tables.tuned_constants(text, "NVIDIA H100") == {}
    assert '"a \\"b\\"" = [2.00, 1.50]' in text


def test_a_table_knows_classes_of_shapes():
    few, many = (tables.ShapeClass.around(torch.bfloat16, cols) for cols in (1, 8191))
    assert [str(few), str(many)] == ["bfloat16, 1 to 1 columns", "bfloat16, 4097 to 8192 columns"]
    text = tables.with_section("", "NVIDIA H200", {"kEach": 2}, {"a": (2.0, 1.5)}, many)
    assert tables.tuned_constants(text, "NVIDIA H200") == {}
    assert '["NVIDIA H200"]' not in text
    text = tables.with_section(text, "NVIDIA H200", {"kEach": 8}, {"call": (1, 1)})
    text = tables.with_section(text, "NVIDIA H200", {"kThreads": 64}, {"b": (3.0, 2.0)}, many)
    assert tables.tuned_constants(text, "NVIDIA H200") == {"kEach": 8}
    assert tables.tuned_by_shape(text, "NVIDIA H200") == {many: {"kEach": 2, "kThreads": 64}}
    assert tables.tuned_by_shape(text, "NVIDIA A100") == {}
    assert '["NVIDIA H200"."bfloat16, 4097 to 8192 columns".measured]' in text
    assert '"a" = [2.00, 1.50]' in text
    with pytest.raises(ValueError, match="has a section 'bfloat, 1 to 2 columns'; wanted is"):
        tables.tuned_by_shape(
            text.replace("bfloat16, 4097 to 8192", "bfloat, 1 to 2"), "NVIDIA H200"
        )


def test_builds_for_a_gpu_take_its_constants_from_the_table(tmp_path, monkeypatch):
    source = write(tmp_path / "twice.cu", TWICE)
    table = jitload.tuning_table(source)
    assert table.name == "twice.tuned.toml"
    monkeypatch.setattr(tables, "this_gpu", lambda: "NVIDIA H200")

    def flags(target, given=()):
        from jitloader.cache import Cache
        from jitloader.inputs import Inputs

        return Inputs.read(jitload.recipe_of([source], target=target, flags=given), Cache.here())

    before = flags("cuda")
    assert before.tuned == ()
    table.write_text(tables.with_section("", "NVIDIA H200", {"kEach": 2}, {}), "utf-8")
    assert not before.are_current()
    after = flags("cuda")
    assert after.tuned == ("-DTUNE_kEach=TUNED(2)",)
    assert after.tuned[0] in after.flags[1]
    assert after.digest != before.digest
    assert flags("cpu").tuned == ()
    tried = flags("cuda", ["-DTUNE_kEach=TUNED(8)"])  # what is being tried counts
    assert (tried.tuned, tried.tuned_by_shape) == ((), [])
    few = tables.ShapeClass(torch.float32, 1, 8)
    text = tables.with_section(table.read_text(), "NVIDIA H200", {"kThreads": 64}, {}, few)
    table.write_text(text, "utf-8")
    assert flags("cuda").tuned_by_shape == [(few, {"kEach": 2, "kThreads": 64})]
    table.write_text(text.replace("1 to 8 columns", "8 columns"), "utf-8")
    with pytest.raises(ValueError, match=r"twice\.tuned\.toml: .* 'float32, 8 columns'; wanted is"):
        flags("cuda").tuned_by_shape  # noqa: B018
    table.write_text(text, "utf-8")
    monkeypatch.setattr(tables, "this_gpu", lambda: "NVIDIA A100")
    assert flags("cuda").tuned == ()


def test_what_gains_is_kept(twice, tmp_path, monkeypatch):
    source = write(tmp_path / "kept.cu", TWICE)
    kernel = jitload.load(source, target="cpu")
    monkeypatch.setattr(type(kernel), "target", "cuda")
    monkeypatch.setattr(type(kernel), "reload", lambda self: True)
    monkeypatch.setattr(tables, "this_gpu", lambda: "NVIDIA H200")
    standing = Candidate({}, samples={"call": [2.0]}, ratios={"call": 1.0})
    best = Candidate({"kEach": 1}, samples={"call": [1.0]}, ratios={"call": 0.5})
    facts = {"constants": ["kEach"], "configurations": 1, "target": "cuda", "device": "a GPU"}
    facts["shapes"] = {"call": [tables.ShapeClass(torch.float32, 1, 8)]}
    told = Tuning(kernel, standing, [best], ["call"], facts)
    assert told.gain == 0.5
    assert told.keep(least=0.6) is None
    kept = told.keep()
    assert kept == tmp_path / "kept.tuned.toml"
    assert tables.tuned_constants(kept.read_text(), "NVIDIA H200") == {"kEach": 1}
    assert '"call" = [2.00, 1.00]' in kept.read_text()


def test_each_class_of_shapes_keeps_its_own_best(twice, tmp_path, monkeypatch):
    kernel = jitload.load(write(tmp_path / "kept.cu", TWICE), target="cpu")
    monkeypatch.setattr(type(kernel), "target", "cuda")
    monkeypatch.setattr(type(kernel), "reload", lambda self: True)
    monkeypatch.setattr(tables, "this_gpu", lambda: "NVIDIA H200")
    few, many, same = (tables.ShapeClass.around(torch.float32, cols) for cols in (8, 4096, 1 << 20))
    calls = {"a": few, "b": many, "c": many, "d": same}

    def candidate(constants, ratios):
        ratios = dict(zip(calls, ratios, strict=True))
        return Candidate(constants, samples={it: [2 * ratios[it]] for it in calls}, ratios=ratios)

    standing = candidate({}, [1, 1, 1, 1])
    tried = [
        candidate({"kEach": 1}, [0.5, 2, 2, 1]),
        candidate({"kEach": 2}, [0.9, 0.8, 0.9, 0.99]),
    ]
    facts = {"constants": ["kEach"], "configurations": 2, "target": "cuda", "device": "a GPU"}
    facts["shapes"] = {name: [shapes] for name, shapes in calls.items()}
    kept = Tuning(kernel, standing, tried, list(calls), facts).keep(by_shape=True).read_text()
    assert tables.tuned_constants(kept, "NVIDIA H200") == {}
    assert tables.tuned_by_shape(kept, "NVIDIA H200") == {few: {"kEach": 1}, many: {"kEach": 2}}
    assert '"b" = [2.00, 1.60]' in kept


# ---- builds side by side


@pytest.mark.slow
def test_builders_end_with_the_process(twice):
    """Even where that is killed in the middle of a build."""
    code = """
import json, os, signal, threading, time, sys
import jitload
from lab.tuner.builds import Builders
kernel = jitload.load(sys.argv[1], target="cpu")
builders = Builders(2)
recipes = [jitload.variant_of(kernel, {"kThreads": n}) for n in range(100, 108)]
def say():
    print(json.dumps([process.pid for process in builders._started]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
builders.build(recipes, say)
"""
    process = subprocess.run(
        [sys.executable, "-c", code, str(twice.sources[0])], capture_output=True, text=True
    )
    pids = json.loads(process.stdout.splitlines()[-1])
    assert pids
    for _ in range(600):
        alive = [pid for pid in pids if _runs(pid)]
        if not alive:
            break
        time.sleep(0.1)
    assert not alive


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - it may vanish meanwhile
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ---- what docs/tune.md says of our ops


@pytest.mark.parametrize("name", tuned.SPACES)
def test_of_each_configuration_the_page_knows_what_it_costs(name: str):
    every = tuned.SPACES[name].configurations()
    assert set(tuned.costs_of(name)) == {tuple(each.values()) for each in every}
    page = [cells for cells in rows_of(tuned.PART.read()) if cells[0] == name]
    assert page == [list(map(str, row)) for row in tuned.rows(name)]
