"""Bad input: the message names the argument, says what it is and what is wanted."""

from collections.abc import Callable, Iterable

import pytest
import torch
from op_cases import CASES, DEVICE, Case, module_of, outcome
from torch import Tensor

import reference

ROWS, COLS = 3, 8

each_case = pytest.mark.parametrize("case", CASES, ids=str)


def each_of(arguments: Callable[[Case], Iterable[str]]) -> pytest.MarkDecorator:
    """For every case and each of the arguments that it names."""
    pairs = [(case, name) for case in CASES for name in arguments(case)]
    ids = [f"{case}-{name}" for case, name in pairs]
    return pytest.mark.parametrize(("case", "name"), pairs, ids=ids)


def wanted_shape(case: Case, name: str) -> str:
    """What the message wants of an argument, beside a first one of shape [ROWS, COLS]."""
    return {
        "rows cols": "wanted are equal shapes",
        "rows": f"wanted is ({ROWS},), an element for each row of {case.first}",
        "cols": f"wanted is ({COLS},), an element for each column of {case.first}",
    }[case.shapes[name]]


def message_of(case: Case, error: type[Exception] = RuntimeError, **changes) -> str:
    inputs = case.inputs(ROWS, COLS, torch.float32) | changes
    with pytest.raises(error) as raised:
        case.ours(**inputs)
    return str(raised.value)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64], ids=str)
@each_case
def test_type_of_the_first(case: Case, dtype: torch.dtype):
    name, kind = case.first, str(dtype).split(".")[1]
    change = {name: torch.zeros(ROWS, COLS, dtype=dtype, device=DEVICE)}
    assert message_of(case, **change) == (
        f"{name} is {kind}; wanted is float64, float32, float16 or bfloat16"
    )


@each_of(lambda case: case.shapes)
def test_no_tensor(case: Case, name: str):
    optional = any(options.get(name, 0) is None for options in case.op.options)
    if not optional and (case.op.name, name) != ("scale_bias_relu", "scale"):
        assert message_of(case, **{name: None}) == f"{name} is None; wanted is a tensor"


@each_of(lambda case: case.shapes)
def test_sparse_tensor(case: Case, name: str):
    change = {name: case.inputs(ROWS, COLS, torch.float32)[name].to_sparse()}
    assert message_of(case, **change) == f"{name} is sparse; wanted is a dense tensor"


@each_of(lambda case: case.differentiable[1:])
def test_types_that_differ(case: Case, name: str):
    change = {name: case.inputs(ROWS, COLS, torch.float64)[name]}
    assert message_of(case, **change) == (
        f"{name} is float64, but {case.first} is float32; wanted is one type for all"
    )


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32], ids=str)
@each_of(lambda case: case.op.limits)
def test_type_of_integers(case: Case, name: str, dtype: torch.dtype):
    change = {name: case.inputs(ROWS, COLS, torch.float32)[name].to(dtype)}
    assert message_of(case, **change) == f"{name} is {str(dtype).split('.')[1]}; wanted is int64"


@each_of(lambda case: case.others)
def test_shape_that_does_not_fit(case: Case, name: str):
    change = {name: case.inputs(ROWS + 1, COLS + 1, torch.float32)[name]}
    shape, first = tuple(change[name].shape), case.first
    assert message_of(case, **change) == (
        f"{name} has shape {shape}, but {first} has shape ({ROWS}, {COLS}); "
        f"{wanted_shape(case, name)}"
    )


@each_of(lambda case: case.others)
def test_rank_that_does_not_fit(case: Case, name: str):
    change = {name: case.inputs(ROWS, COLS, torch.float32)[name][None]}
    shape, first = tuple(change[name].shape), case.first
    message = message_of(case, **change)
    assert message.startswith(f"{name} has shape {shape}, but {first} has shape ({ROWS}, {COLS})")


def without_dimensions(case: Case) -> dict[str, Tensor]:
    """x [rows, cols] becomes a number, and target [rows] with it; weight [cols] stays."""
    inputs = case.inputs(1, 1, torch.float32)
    return {
        name: tensor if case.shapes[name] == "cols" else tensor.reshape(())
        for name, tensor in inputs.items()
    }


@each_case
def test_no_dimension(case: Case):
    """Right, or a message."""
    inputs = without_dimensions(case)
    try:
        got = outcome(case.ours, inputs)
    except RuntimeError as refusal:
        message = str(refusal)
    else:
        want = outcome(case.theirs, inputs)
        for name in want:
            torch.testing.assert_close(got[name], want[name])
        return
    assert message == f"{case.first} has no dimension; wanted is [..., cols]"


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.op.name in ("square", "relu") or c.options == {"dim": None}],
    ids=str,
)
def test_elementwise_ops_and_sums_over_all_take_a_number(case: Case):
    inputs = without_dimensions(case)
    assert case.ours(**inputs) == case.theirs(**inputs)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type != "cuda", reason="a tensor on a second device needs a GPU")
@each_of(lambda case: case.shapes)
def test_wrong_device(case: Case, name: str):
    change = {name: case.inputs(ROWS, COLS, torch.float32)[name].cpu()}
    message = message_of(case, **change)
    if name == case.first:
        assert message == (
            f"{name} is on cpu; this kernel is built for cuda: move it with {name}.cuda()"
        )
    else:
        assert message == (
            f"{name} is on cpu, but {case.first} is on cuda:0; wanted is one device for all"
        )


@each_case
def test_unknown_version(case: Case):
    versions = ", ".join(module_of(case.op.name).VERSIONS)
    unknown = Case(case.op, "fastest", case.options)
    assert message_of(unknown, ValueError) == f"version is 'fastest'; wanted is one of {versions}"


@pytest.mark.parametrize("dim", [0, -2, 5, "x"])
def test_reduce_sum_of_another_dimension(dim):
    case = Case(reference.OPS["reduce_sum"], "vector", {"dim": dim})
    assert message_of(case, ValueError).startswith(f"dim is {dim!r}; wanted is -1")
