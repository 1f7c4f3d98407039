"""Each trap planted in an op that is right, and found; and the op that is right, which none has."""

import html
import os
import sys
from functools import partial

import cloudpickle
import planted_op
import pytest
import torch
from planted_op import IN_KERNELS, Op, kernels, reference
from planted_python import IN_PYTHON, IN_SOURCE, SOURCE

import jitload
import lab
from lab.auditor import cases, frameworks, numbers
from lab.auditor.example import Call, Example
from lab.auditor.report import FAIL, NOTE

DICE = torch.Generator().manual_seed(3)
INPUTS = torch.randn(20, 40, generator=DICE), torch.randn(40, generator=DICE), 0.5


@pytest.fixture(autouse=True)
def all_calls_are_tried(monkeypatch):
    """However long they take: a trap tries as many as it comes to within its time."""
    monkeypatch.setattr("lab.auditor.subject.Subject.until", lambda self, calls: calls)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return kernels(tmp_path_factory.mktemp("planted"))


def audited(op, only=None, inputs=INPUTS, **options) -> lab.Audit:
    options = {"isolated": False, "reference": reference} | options
    return lab.audit(op, inputs, only=only, **options)


def caught(report: lab.Audit) -> set[str]:
    return {it.name for it in report.rows if it.verdict in (FAIL, NOTE)}


def test_the_right_op_falls_into_none(built):
    report = audited(Op(built))
    assert report.ok, str(report)
    assert not caught(report), str(report)
    assert bool(report)


@pytest.mark.parametrize("name", IN_KERNELS)
def test_a_mistake_in_a_kernel_is_found(built, name):
    rows = IN_KERNELS[name][1]
    assert caught(audited(Op(built, name), rows)) & rows


@pytest.mark.parametrize("op", IN_PYTHON, ids=lambda it: it.__name__)
def test_a_mistake_in_python_is_found(built, op):
    rows = IN_PYTHON[op]
    report = audited(op(built), rows)
    assert caught(report) & rows, str(report)


def test_a_finding_has_line_example_and_advice(built):
    report = audited(Op(built, "one_too_many"), ["bounds"])
    row = report.row("bounds")
    text = planted_op.KERNELS.replace(
        "if (i < n) {\n        float v", "if (i <= n) {\n        float v"
    )
    number = text[: text.index("float v")].count("\n") + 1
    path, _, line = row.line.rpartition(":")
    assert path.endswith("planted.cu")
    assert (int(line) - 2 - number) % text.count("\n") in (0, 1, 2)
    assert row.example.startswith("x=float32[1, 1]")
    assert row.advice
    assert row.line in str(report)


def test_a_gradient_that_is_written_to_is_told_as_that(built):
    """What arrives is the truth's, too: a right gradient was called wrong."""

    class InPlace(Op):
        def grad_taken(self, g):
            self.arrived = g
            return super().grad_taken(g)

        def gradients(self, ctx, g, dx, dw):
            self.arrived.mul_(2)
            return super().gradients(ctx, g, dx, dw)

    report = audited(InPlace(built), ["error", "inputs unwritten", "shapes"])
    assert [it.name for it in report.failed] == ["inputs unwritten"], str(report)


def test_a_fault_of_every_call_is_told_once_and_whole(built):
    report = audited(Op(built, "no_bound"), ["error", "shapes", "scales", "special values"])
    first = report.row("error")
    assert "past the end of memory of" in first.message
    others = [it for it in report.failed[1:] if it.line == first.line]
    assert others
    for text in (str(report), html.unescape(report._repr_html_())):
        assert text.count("past the end of memory of") == len({it.line for it in report.failed})
        assert text.count(f"as in error: {first.line}") == len(others)


@pytest.mark.parametrize("name", IN_SOURCE)
def test_a_mistake_in_a_source_is_found(tmp_path, name):
    old, new, row = IN_SOURCE[name]
    assert SOURCE.count(old) == 1
    text = SOURCE.replace(old, new)
    report = of_source(tmp_path, text)
    assert caught(report) == {row}, str(report)
    number = int(report.row(row).line.rpartition(":")[2])
    if new:
        assert any(it in text.splitlines()[number - 1] for it in new.splitlines()), report.row(row)


def of_source(folder, text: str) -> lab.Audit:
    path = folder / "mine.cu"
    path.write_text(text)
    return audited(torch.relu, ["source"], torch.ones(3), reference=torch.relu, sources=[path])


@pytest.mark.parametrize(
    "guard",
    [
        "const c10::cuda::CUDAGuard guard(x.device());",
        "c10::cuda::OptionalCUDAGuard guard(x.device());",
        "c10::cuda::MaybeSetDevice(x.get_device());",
        "at::cuda::CUDAStreamGuard guard(at::cuda::getCurrentCUDAStream(x.get_device()));",
    ],
)
def test_the_right_source_has_none(tmp_path, guard):
    text = SOURCE.replace("const c10::cuda::CUDAGuard guard(x.device());", guard)
    assert not caught(of_source(tmp_path, text))


def refusing(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("x is on the CPU; wanted is a GPU")


def test_an_op_that_refuses_the_example_is_not_ok():
    report = lab.audit(refusing, torch.ones(3), reference=torch.relu, isolated=False)
    assert not report.ok
    assert "it refuses the example: ValueError: x is on the CPU" in report.row("error").message


# What changes each setting that the audit looks at.
CHANGES = {
    "torch.is_grad_enabled()": lambda: torch.set_grad_enabled(False),
    "torch.get_default_dtype()": lambda: torch.set_default_dtype(torch.float64),
    "torch.get_num_threads()": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "torch.get_deterministic_debug_mode()": lambda: torch.set_deterministic_debug_mode("warn"),
    "torch.get_float32_matmul_precision()": lambda: torch.set_float32_matmul_precision("medium"),
    "torch.is_autocast_enabled()": lambda: torch.set_autocast_enabled("cpu", True),
    "torch.backends.cudnn.benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "the random numbers that follow": lambda: torch.rand(1),
}


@pytest.mark.parametrize("name", frameworks._SETTINGS)
def test_a_setting_that_a_call_changes_is_named_and_put_back(name):
    """An audit may run in the process that asked for it."""
    before = frameworks._settings()

    def changing(x: torch.Tensor) -> torch.Tensor:
        CHANGES[name]()
        return x * 2

    report = audited(changing, ["settings"], torch.ones(3, 4), reference=_twice)
    left = frameworks._changed_since(before)
    for it in left:  # the other tests are not to suffer from it
        frameworks._SETTINGS[it][1](before[it])
    assert report.row("settings").message == f"a call changes {name}"
    assert not left


# ---- ops of torch.library


def library_op(name: str, run, fake) -> torch._ops.OpOverload:
    library = torch.library.Library("audit_plants", "FRAGMENT")
    library.define(f"{name}(Tensor x) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(name, run, "CompositeExplicitAutograd")
    library.impl(name, fake, "Meta")
    _LIBRARIES.append(library)
    return getattr(torch.ops.audit_plants, name).default


_LIBRARIES: list[torch.library.Library] = []


@pytest.mark.parametrize(
    ("name", "run", "fake", "row"),
    [
        ("right", lambda x: x * 2, lambda x: torch.empty_like(x), None),
        ("written", lambda x: x.mul_(2).clone(), lambda x: torch.empty_like(x), "opcheck"),
        (
            "type",
            lambda x: x * 2,
            lambda x: x.new_empty(x.shape, dtype=torch.float16),
            "fake tensors",
        ),
        ("shape", lambda x: x * 2, lambda x: x.new_empty(6, 8), "fake tensors"),
        (
            "strides",
            lambda x: (x * 2).contiguous(),
            lambda x: x.new_empty(x.shape[::-1]).t() if x.dim() == 2 else torch.empty_like(x),
            "fake tensors",
        ),
    ],
)
def test_an_op_of_torch_library(name, run, fake, row):
    op = library_op(name, run, fake)
    x = torch.ones(6, 8) + torch.arange(8)
    report = audited(op, ["PyTorch"], x, reference=lambda x: x * 2)
    if row:
        assert row in caught(report), str(report)
    else:
        assert not caught(report), str(report)


@torch.library.custom_op("audit_plants::custom", mutates_args=())
def custom(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


custom.register_fake(lambda x, by: torch.empty_like(x))


@torch.library.custom_op("audit_plants::of_a_size", mutates_args=())
def of_a_size(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


of_a_size.register_fake(lambda x, by: x.new_empty(6, 8))


@pytest.mark.parametrize("op", [custom, of_a_size], ids=["right", "of_a_size"])
def test_an_op_of_custom_op(op):
    only = ["error", "shapes", "opcheck", "fake tensors"]
    report = audited(op, only, (torch.ones(6, 8), 2.0), reference=lambda x, by: x * by)
    assert caught(report) == ({"fake tensors"} if op is of_a_size else set()), str(report)


class Quadratic:
    """Its time grows by the square of the rows, but for a part that all calls have. On a clock of
    its own, which it turns on: it takes none."""

    __name__ = "quadratic"

    def __init__(self, seconds: float, fixed: float, busy: float = 1.0):
        self.seconds, self.fixed, self.busy, self.now = seconds, fixed, busy, 0.0

    def process_time(self) -> float:
        return self.now

    def perf_counter(self) -> float:
        return self.now * self.busy

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0] / cases.MANY_ROWS
        self.now += self.fixed + self.seconds * rows**2
        return x * 2


@pytest.mark.parametrize("fixed", [0.0, 0.02, 1.0])
@pytest.mark.parametrize(("seconds", "is_left_out"), [(30.0, True), (10.0, False)])
def test_sizes_that_would_take_minutes_are_left_out_and_named(
    monkeypatch, seconds, fixed, is_left_out
):
    """Whatever part of their time is the same for all."""
    quadratic = Quadratic(seconds, fixed)
    monkeypatch.setattr("lab.auditor.numbers.time", quadratic)
    options = {"reference": _twice, "only": ["beyond a grid"], "isolated": False}
    report = lab.audit(quadratic, torch.ones(3, 4), **options)
    row = report.row("beyond a grid")
    assert row.verdict == "ok", str(report)
    told = f"1 of them; n3 = 65537 would take some {seconds + fixed:.0f} s"
    assert row.message == (told if is_left_out else "2 of them")


def test_sizes_beyond_a_grid_beside_a_size_that_stays():
    """Eight corners of a cell, with two features each, in 65,537 cells."""

    def first(x: torch.Tensor, rows: int = 1 << 30) -> torch.Tensor:
        assert x.shape[1] == 8
        return 2 * x[:, 0] * (torch.arange(len(x)) < rows)[:, None]

    options = {"reference": first, "only": ["beyond a grid"], "isolated": False}
    report = lab.audit(first, torch.ones(9, 8, 4), **options)
    assert report.row("beyond a grid").verdict == "ok", str(report)
    assert not lab.audit(lambda x: first(x, 65535), torch.ones(9, 8, 4), **options).ok


def test_how_long_it_would_take_is_found_in_a_short_time(monkeypatch):
    """A thousand rows took a minute, from which the hours of 65,537 were to be told."""
    slow = Quadratic(30000.0, 0.0)
    monkeypatch.setattr("lab.auditor.numbers.time", slow)
    options = {"reference": _twice, "only": ["beyond a grid"], "isolated": False}
    row = lab.audit(slow, torch.ones(3, 4), **options).row("beyond a grid")
    assert row.message.startswith("1 of them; n3 = 65537 would take some ")
    assert slow.now < 2


def test_sizes_beyond_a_grid_have_seconds_together(monkeypatch):
    """Of a busy machine's clock, which shows more than the processor's."""
    options = {"reference": _twice, "only": ["beyond a grid"], "isolated": False}
    with monkeypatch.context() as patch:
        quadratic = Quadratic(10.0, 0.0, busy=3.0)
        patch.setattr(numbers, "time", quadratic)
        row = lab.audit(quadratic, torch.ones(3, 4), **options).row("beyond a grid")
        assert row.message == "1 of them; n3 = 65537 would take some 30 s"
    monkeypatch.setattr(numbers, "_would_take", lambda subject, small, letter: 12.0)
    row = lab.audit(_twice, torch.ones(3, 4), **options).row("beyond a grid")
    assert row.message == "1 of them; n4 = 65537 would take some 12 s"


def test_an_op_that_refuses_small_sizes_is_tried_with_the_examples():
    """Every row that tries small calls was refused."""

    def switching(x: torch.Tensor) -> torch.Tensor:
        if x.shape[-1] % 32:
            raise ValueError("wanted is a multiple of 32 columns")
        torch.set_grad_enabled(False)
        return x.detach() * 2

    report = audited(switching, ["settings", "gradient there"], torch.ones(3, 64), reference=_twice)
    assert caught(report) == {"settings", "gradient there"}, str(report)


EXITING = """
#include <cstdlib>
__global__ void twice(const float* x, float* y, int64_t n) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
extern "C" void launch(const float* x, float* y, int64_t n, cudaStream_t stream) {
    twice<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
    if (cudaGetLastError() != cudaSuccess) exit(1);
}
"""


def test_an_op_that_ends_the_process_of_its_caller(tmp_path):
    """The simulator makes an exception of exit(); it was taken for a refusal."""
    path = tmp_path / "exiting.cu"
    path.write_text(EXITING)
    kernel = jitload.load(path, target="cpu")

    def exiting(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape)
        kernel.launch(x.contiguous(), y, x.numel())
        return y

    report = audited(exiting, ["empty"], torch.ones(3, 4), reference=_twice)
    assert report.row("empty").verdict == FAIL, str(report)
    assert "calls exit(1)" in report.row("empty").message


def test_a_square_that_becomes_zero_early():
    """Inputs near the smallest normal number have no square; those near its root have."""
    options = {"reference": torch.square, "inputs": torch.randn(5, 7)}
    report = audited(lambda x: x.square() * (x.abs() > 1e-15), ["subnormal"], **options)
    assert caught(report) == {"subnormal"}, str(report)
    assert not caught(audited(torch.square, ["subnormal"], **options))


class Deviation(torch.autograd.Function):
    """Squares of the deviations from the mean; its input is kept beside save_for_backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return (x - x.mean()).square()

    @staticmethod
    def backward(ctx, g):
        deviation = ctx.x - ctx.x.mean()
        y = 2 * deviation * g
        return y - y.mean()


def test_a_changed_input_is_found_where_only_differences_count():
    """One number was added to all elements, and the gradient stayed as it was."""
    options = {"reference": lambda x: (x - x.mean()).square(), "inputs": torch.randn(5, 7)}
    report = audited(Deviation.apply, ["saved tensors", "gradients"], **options)
    assert report.row("gradients").verdict == "ok", str(report)
    assert report.row("saved tensors").verdict == FAIL, str(report)


def switching(x: torch.Tensor) -> torch.Tensor:
    torch.set_grad_enabled(False)
    return x * 2


def test_a_changed_setting_is_found_beside_other_traps():
    """Another trap's call had changed it before, so that the trap saw no change."""
    report = audited(switching, ["error", "shapes", "settings"], torch.ones(3, 4), reference=_twice)
    assert torch.is_grad_enabled()
    assert report.row("settings").verdict == FAIL, str(report)


# ---- crashes


def crashing(how: str, x: torch.Tensor) -> torch.Tensor:
    if x.numel() == 0:
        if how == "crash":
            os.abort()
        while how == "hang":
            pass
    return x * 2


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("how", ["crash", pytest.param("hang", marks=pytest.mark.slow)])
def test_a_crash_is_a_row_and_the_others_go_on(how):

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    op = partial(crashing, how)
    op.__name__ = "crashing"
    report = lab.audit(
        op,
        torch.ones(3, 4),
        reference=_twice,
        only=["error", "empty", "same bits"],
        seconds=60 if how == "crash" else 20,
    )
    assert report.row("empty").verdict == FAIL
    assert ("SIGABRT" if how == "crash" else "did not return within") in report.row("empty").message
    assert report.row("error").verdict == report.row("same bits").verdict == "ok"


class Aborting(torch.autograd.Function):
    """A reference whose backward pass ends its process where there are no columns."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return os.abort() if not grad.shape[1] else grad * 2


@pytest.mark.usefixtures("forked")
def test_a_crash_of_the_reference_is_no_trap_of_the_op():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    report = lab.audit(
        partial(crashing, ""),
        torch.ones(3, 4),
        reference=lambda x: Aborting.apply(x),
        only=["error", "empty"],
    )
    assert [it.verdict for it in report.rows] == ["ok", "ok"], str(report)
    assert report.row("empty").message == "1 of them"
    assert "the reference itself ended its process" in report.notes[0]
    assert "SIGABRT" in report.notes[0]


def _twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_an_index_is_tried_on_the_cpu_first(monkeypatch):
    """On a GPU one that is too large would end all that follows; here the meta device stands for
    one."""
    tried = []

    def reference(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        tried.append(x.device.type)
        return x[i]

    call = Call.of(reference, (torch.ones(5, 2), torch.tensor([1, 4])), {})
    example = Example.of(call, reference)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda t: t.device.type == "meta"))
    tried.clear()
    short = call.with_leaves([torch.ones(4, 2), call.leaves[1]])
    assert not example.takes(short)
    on_gpu = call.mapped(lambda t: t.to("meta"))
    monkeypatch.setattr(torch.Tensor, "cpu", lambda t: torch.zeros(t.shape, dtype=t.dtype))
    tried.clear()
    assert example.takes(on_gpu)
    assert tried[-2:] == ["cpu", "meta"]


def lost(x: torch.Tensor) -> torch.Tensor:
    from lab.auditor import process

    if x.numel() == 0:
        process.gpu_is_lost = lambda: True
        raise RuntimeError("CUDA error: device-side assert triggered")
    return x * 2


def test_traps_after_a_fault_on_a_gpu_are_tried_in_another_process():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    report = lab.audit(lost, torch.ones(3, 4), reference=_twice, only=["error", "empty", "scales"])
    assert [it.verdict for it in report.rows] == ["ok", FAIL, "ok"], str(report)


def test_a_function_of_a_notebook_is_sent_to_another_process():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    options = {"reference": _twice, "only": ["error", "gradients"]}
    report = lab.audit(Twice.apply, torch.ones(3, 4), **options)
    assert not report.notes
    assert [it.verdict for it in report.rows] == ["ok", "ok"], str(report)
