"""Bad input: the message names the argument, says what it is and what is wanted."""

import pytest
import torch
from op_cases import CASES, DEVICE, Case, module_of

import reference

ROWS, COLS = 3, 8

each_case = pytest.mark.parametrize("case", CASES, ids=str)
EACH_ARGUMENT = [(case, name) for case in CASES for name in case.op.shapes]
each_argument = pytest.mark.parametrize(
    ("case", "name"), EACH_ARGUMENT, ids=[f"{case}-{name}" for case, name in EACH_ARGUMENT]
)
EACH_OTHER = [(case, name) for case, name in EACH_ARGUMENT if name != "x"]
each_other = pytest.mark.parametrize(
    ("case", "name"), EACH_OTHER, ids=[f"{case}-{name}" for case, name in EACH_OTHER]
)


def message_of(case: Case, error: type[Exception] = RuntimeError, **changes) -> str:
    inputs = case.inputs(ROWS, COLS, torch.float32) | changes
    with pytest.raises(error) as raised:
        case.ours(**inputs)
    return str(raised.value)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64], ids=str)
@each_case
def test_type_of_x(case: Case, dtype: torch.dtype):
    x = torch.zeros(ROWS, COLS, dtype=dtype, device=DEVICE)
    kind = str(dtype).split(".")[1]
    assert message_of(case, x=x) == f"x is {kind}; wanted is float64, float32, float16 or bfloat16"


@each_other
def test_types_that_differ(case: Case, name: str):
    change = {name: torch.zeros(COLS, dtype=torch.float64, device=DEVICE)}
    assert message_of(case, **change) == (
        f"{name} is float64, but x is float32; wanted is one type for all"
    )


@each_other
def test_shape_that_does_not_fit(case: Case, name: str):
    change = {name: torch.zeros(COLS + 1, device=DEVICE)}
    assert message_of(case, **change) == (
        f"{name} has shape (9,), but x has shape (3, 8); wanted is (8,), an element for each "
        "column of x"
    )


@each_other
def test_rank_that_does_not_fit(case: Case, name: str):
    change = {name: torch.zeros(1, COLS, device=DEVICE)}
    message = message_of(case, **change)
    assert message.startswith(f"{name} has shape (1, 8), but x has shape (3, 8)")


@each_case
def test_x_without_a_dimension(case: Case):
    if case.op.name in ("square", "relu") or case.options == {"dim": None}:
        x = torch.tensor(3.0, device=DEVICE)
        assert case.ours(x=x) == case.theirs(x=x)
    else:
        message = message_of(case, x=torch.tensor(3.0, device=DEVICE))
        assert message == "x has no dimension; wanted is [..., cols]"


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type != "cuda", reason="a tensor on a second device needs a GPU")
@each_argument
def test_wrong_device(case: Case, name: str):
    change = {name: case.inputs(ROWS, COLS, torch.float32)[name].cpu()}
    message = message_of(case, **change)
    if name == "x":
        assert message == "x is on cpu; this kernel is built for cuda: move it with x.cuda()"
    else:
        assert message == f"{name} is on cpu, but x is on cuda:0; wanted is one device for all"


@each_case
def test_unknown_version(case: Case):
    versions = ", ".join(module_of(case.op.name).VERSIONS)
    unknown = Case(case.op, "fastest", case.options)
    assert message_of(unknown, ValueError) == f"version is 'fastest'; wanted is one of {versions}"


@pytest.mark.parametrize("dim", [0, -2, 5, "x"])
def test_reduce_sum_of_another_dimension(dim):
    case = Case(reference.OPS["reduce_sum"], "vector", {"dim": dim})
    assert message_of(case, ValueError).startswith(f"dim is {dim!r}; wanted is -1")
