"""Whatever an op is given: the right answer or a clear exception, no crash, no leak."""

import gc
import os
import shutil
import subprocess
import sys
import threading
from itertools import cycle, islice, pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from op_calls import CALLS, DRAWN
from op_cases import (
    BEST,
    CASES,
    DEVICE,
    Case,
    allocated_on_gpu,
    by_name,
    converted,
    no_findings,
    on_cpu,
    outcome,
)
from torch import Tensor

import reference
from lab.auditor.cases import expanded, flipped, misaligned, strided, transposed

each_best = pytest.mark.parametrize("case", BEST, ids=str)

# ---- anything at all

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
OTHERS = (torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn)
SIZES = st.sampled_from((0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 127, 130, 1025))
VALUES = (0.0, -0.0, 1.0, -1e-30, 3e4, -1e15, float("inf"), float("-inf"), float("nan"))


LAYOUTS = st.sampled_from((Tensor.contiguous, transposed, strided, expanded, misaligned, flipped))


@st.composite
def calls(draw: st.DrawFn, case: Case) -> tuple[dict[str, object], bool]:
    """Arguments of one call, and whether all of them are as the op wants them."""
    leading = draw(st.lists(st.sampled_from((0, 1, 2, 3, 5, 9)), max_size=3))
    cols, dtype = draw(SIZES), draw(st.sampled_from(FLOATS))
    inputs = case.inputs_of_rank((*leading, cols), dtype, seed=draw(st.integers(0, 99)))
    for name, tensor in inputs.items():
        if name not in case.op.limits and tensor.numel():
            for value in draw(st.lists(st.sampled_from(VALUES), max_size=3)):
                tensor.view(-1)[draw(st.integers(0, tensor.numel() - 1))] = value
        inputs[name] = draw(LAYOUTS)(tensor)
    if draw(st.integers(0, 2)):
        return inputs, cols > 0 or "cols" not in case.op.limits.values()
    name = draw(st.sampled_from(list(inputs)))
    inputs[name] = draw(st.sampled_from(wrong(inputs[name])))()
    return inputs, False


def wrong(t: Tensor) -> list:
    """Ways to make something else of a tensor; a few of them happen to be right."""
    elsewhere = "cpu" if t.is_cuda else "meta"
    ways = [
        lambda: None,
        lambda: 3.5,
        lambda: "x",
        lambda: t.cpu().numpy() if t.dtype != torch.bfloat16 else [1.0],
        lambda: t.to(elsewhere),
        lambda: t.to_sparse() if t.dim() else t,
        lambda: t[None],
        lambda: t.reshape(-1),
        lambda: torch.cat((t, t), -1) if t.dim() else t,
        lambda: t[..., :0] if t.dim() else t,
        lambda: torch.nn.Parameter(t) if t.is_floating_point() else t,
    ]
    return ways + [lambda dtype=dtype: t.abs().nan_to_num(0, 0).to(dtype) for dtype in OTHERS]


def same(got: Tensor, theirs: Tensor, truth: Tensor) -> None:
    """Right by PyTorch in the same type, or by float64 where that overflows or rounds over an edge.

    Right is: off by a few roundings of the type at the largest number, or by four times as much as
    PyTorch is where most of a sum cancels; and not a number where neither of them has one.
    """
    rough = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 1e-1}
    assert got.shape == theirs.shape
    assert got.dtype == theirs.dtype
    right = ~got.isfinite()
    off = (theirs.double() - truth.double()).abs()
    off = off[off.isfinite() & (theirs.abs() < torch.finfo(got.dtype).max / 2)]
    slack = 4 * off.max().item() if off.numel() else 0.0
    for want in (theirs.double(), truth.double()):
        finite = want.isfinite()
        largest = want[finite].abs().max().item() if finite.any() else 0.0
        tolerance = max(rough.get(got.dtype, 0.0) * (1 + largest), slack)
        right |= finite & ((got.double() - want).abs() <= tolerance)
        right |= want.isinf() & (got.abs() >= torch.finfo(got.dtype).max / 2)
    assert right.all()
    assert not (got.isnan() & theirs.isfinite() & truth.isfinite()).any()


def is_tame(tensor: Tensor, most: float = 1e5) -> bool:
    return bool((tensor.abs() < most).all())


def is_judged(name: str, case: Case, inputs: dict[str, object]) -> bool:
    """Whether PyTorch's own result or gradient `name` is no noise, in float64 either.

    Where x and its mean are 1e15 its gradient is; and of products the result, too: beside 1e15 the
    digits of 1 are lost, and which ones depends on the order of the sum. So they are of differences
    from such a mean, in float64: nothing here has more digits.

    The terms of a product's gradient have an input as a factor: where one is beyond 1 / eps, a
    rounding of the result alone changes the gradient by more than 1.
    """
    tensors = [tensor for tensor in inputs.values() if isinstance(tensor, Tensor)]
    if name.startswith("y"):
        in_float64 = any(tensor.dtype == torch.float64 for tensor in tensors)
        if not case.is_product and not ("layer_norm" in case.op.name and in_float64):
            return True
        tensors = [tensor[tensor.isfinite()] for tensor in tensors]
    elif case.is_product:
        floats = [tensor for tensor in tensors if tensor.is_floating_point()]
        return all(is_tame(it, min(1e5, 1 / torch.finfo(it.dtype).eps)) for it in floats)
    return all(is_tame(tensor) for tensor in tensors)


def check_refusal(error: Exception, valid: bool) -> None:
    """An exception that a person can act on, not one from the depths, and not of what is right."""
    assert not valid, f"refused what is right: {error}"
    assert isinstance(error, (RuntimeError, TypeError, ValueError, NotImplementedError)), error
    assert str(error).strip()
    for depth in ("CUDA error", "illegal memory", "INTERNAL ASSERT", "launch failed"):
        assert depth not in str(error)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
@settings(max_examples=60, deadline=None, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_right_or_a_clear_exception(case: Case, data: st.DataObject):
    inputs, valid = data.draw(calls(case))
    refusal = None
    try:
        got = by_name(case.ours(**inputs))
    except Exception as error:
        refusal = error
    if refusal:
        check_refusal(refusal, valid)
        return
    assert all(y.device.type == DEVICE.type for y in got.values()) or len(inputs) == 1
    if any(y.is_meta for y in got.values()):
        return  # a shape alone
    if valid:
        got, want = outcome(case.ours, inputs), outcome(case.theirs, inputs)
        truth = outcome(case.theirs, on_cpu(converted(inputs, torch.float64)))
    else:
        want = by_name(case.theirs(**inputs))
        truth = by_name(case.theirs(**on_cpu(converted(inputs, torch.float64))))
    for name in want:
        if is_judged(name, case, inputs):
            same(got[name], want[name], truth[name].to(DEVICE))
        else:
            assert got[name].shape == want[name].shape
            assert got[name].dtype == want[name].dtype


# ---- no leak

ROUNDS = 4
REPEATS = 10_000 if DEVICE.type == "cuda" else 3_600


def resident() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def objects() -> int:
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("op", sorted({case.op.name for case in BEST}))
def test_thousands_of_calls_grow_nothing(op: str):
    """Of an op, with each of its options in turn."""
    inputs = [(case, case.inputs(4, 40, torch.float32)) for case in BEST if case.op.name == op]

    def call(times: int) -> None:
        for case, tensors in islice(cycle(inputs), times):
            outcome(case.ours, tensors)

    call(REPEATS // 10)
    gc.collect()
    on_gpu = allocated_on_gpu()
    living = objects()
    held = [resident()]
    for _ in range(ROUNDS):
        call(REPEATS // ROUNDS)
        gc.collect()
        held.append(resident())
    assert objects() - living < 100
    assert allocated_on_gpu() == on_gpu
    # The allocator may take a page for itself once; a lost tensor, 200 bytes, is lost every time.
    repeats_of_one = REPEATS // ROUNDS // len(inputs)
    assert min(after - before for before, after in pairwise(held)) < 100 * repeats_of_one


@each_best
def test_threads_do_not_disturb_each_other(case: Case):
    inputs = [case.inputs(9, 40 + turn, torch.float32, seed=turn) for turn in range(4)]
    want = [outcome(case.ours, given) for given in inputs]
    wrong: list[str] = []

    def work(turn: int) -> None:
        for _ in range(20):
            got = outcome(case.ours, inputs[turn])
            wrong.extend(name for name in got if not torch.equal(got[name], want[turn][name]))

    threads = [threading.Thread(target=work, args=(turn,)) for turn in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- the checker, and compute-sanitizer


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case.is_product], ids=str)
def test_the_checker_finds_nothing(case: Case):
    """Forward and backward, in several tiles with tails."""

    def both(**inputs: Tensor) -> None:
        outcome(case.ours, inputs)

    inputs = case.op.inputs(70, 72, torch.bfloat16, without=case.options)
    no_findings(both, **inputs, traffic=False)


SANITIZER = shutil.which("compute-sanitizer") or shutil.which(
    "compute-sanitizer", path="/usr/local/cuda/bin"
)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a GPU")
@pytest.mark.skipif(SANITIZER is None, reason="needs compute-sanitizer")
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck", "synccheck"])
@pytest.mark.parametrize("op", [*reference.OPS, *DRAWN])
def test_compute_sanitizer_finds_nothing(op: str, tool: str):
    """Every version and option of the op, forward and backward, in a process under the tool."""
    script = Path(__file__).parents[1] / "helpers/sanitized.py"
    answer = subprocess.run(
        [SANITIZER, "--tool", tool, "--error-exitcode", "9", sys.executable, str(script), op],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        timeout=500,
    )
    said = f"{answer.stdout[-6000:]}\n{answer.stderr[-3000:]}"
    assert answer.returncode == 0, said
    cases = sum(case.op.name == op for case in CASES) + sum(call.name == op for call in CALLS)
    assert f"ran {cases} cases" in answer.stdout, said
    assert "0 errors" in answer.stdout or "0 hazards" in answer.stdout, said
