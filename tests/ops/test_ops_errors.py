"""Bad input: the message names the argument, says what it is and what is wanted."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable

import pytest
import torch
from op_cases import (
    CASES,
    DEVICE,
    Calls,
    Case,
    by_name,
    copied,
    is_elementwise,
    module_of,
    outcome,
)
from torch import Tensor
from wrong_calls import assert_each_tensor_is_checked, quantized

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
    sizes = {"rows": ROWS, "cols": COLS}
    if not {"rows", "cols"}.issuperset(case.shapes[name].split()):
        letters = case.shapes[name].split()
        each = [r"\w+" if x in case.op.sizes else str(reference.size_of(x, sizes)) for x in letters]
        return rf"wanted is \({', '.join(each)}{',' * (len(letters) == 1)}\)"
    return {
        "rows cols": "wanted are equal shapes$",
        "rows": rf"wanted is \({ROWS},\), an element for each row of {case.first}$",
        "cols": rf"wanted is \({COLS},\), an element for each column of {case.first}$",
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
    function = getattr(module_of(case.op.name), case.op.name)
    parameter = inspect.signature(function).parameters[name]
    if parameter.default is not None and "float" not in str(parameter.annotation):
        assert message_of(case, **{name: None}) == f"{name} is None; wanted is a tensor"


@each_of(lambda case: case.shapes)
def test_sparse_tensor(case: Case, name: str):
    change = {name: case.inputs(ROWS, COLS, torch.float32)[name].to_sparse()}
    assert message_of(case, **change) == f"{name} is sparse; wanted is a dense tensor"


@each_of(lambda case: case.shapes)
def test_quantized_tensor(case: Case, name: str):
    change = {name: quantized(case.inputs(ROWS, COLS, torch.float32)[name].shape)}
    assert message_of(case, **change).startswith(f"{name} is quint8")


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
    more = {letter: size + 1 for letter, size in case.op.sizes.items()}
    inputs = case.op.inputs(ROWS + 1, COLS + 1, device=DEVICE, **more)
    change = {name: inputs[name]}
    shape, first = tuple(change[name].shape), case.first
    start = f"{name} has shape {shape}, but {first} has shape ({ROWS}, {COLS})"
    message = message_of(case, **change)
    assert message.startswith(start)
    assert re.match(f"; {wanted_shape(case, name)}", message.removeprefix(start))


@each_of(lambda case: case.others)
def test_rank_that_does_not_fit(case: Case, name: str):
    """Right, as where one table serves a batch, or a message."""
    inputs = case.inputs(ROWS, COLS, torch.float32)
    inputs[name] = inputs[name][None]
    shape, first = tuple(inputs[name].shape), case.first
    try:
        got = by_name(case.ours(**inputs))
    except RuntimeError as refusal:
        message = str(refusal)
    else:
        want = by_name(case.theirs(**inputs))
        for result in want:
            torch.testing.assert_close(got[result], want[result])
        return
    start = f"{name} has shape {shape}, but {first} has shape ({ROWS}, {COLS})"
    assert message.startswith(start)


def without_dimensions(case: Case) -> dict[str, Tensor]:
    """x [rows, cols] becomes a number, and target [rows] with it; what has no rows stays."""
    inputs = case.inputs(1, 1, torch.float32)
    for name, shape in case.shapes.items():
        if shape.startswith("rows"):
            sizes = {"cols": 1} | case.op.sizes
            kept = [reference.size_of(x, sizes) for x in shape.split() if x not in ("rows", "cols")]
            inputs[name] = inputs[name].reshape(kept)
    return inputs


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
    [c for c in CASES if is_elementwise(c.op) or c.options == {"dim": None}],
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


@pytest.mark.parametrize("value", [1.5, "3", float("nan"), 2**63, -(2**63) - 1], ids=repr)
@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("dropout_layer_norm", "seed"),
        ("dropout_layer_norm", "offset"),
        ("cross_entropy", "ignore_index"),
    ],
)
def test_integer_that_is_none(name: str, argument: str, value: object):
    options = {} if argument == "ignore_index" else {"seed": 3}
    case = Case(reference.OPS[name], "vector", options | {argument: value})
    wanted = f"{argument} is {value!r}; wanted is an int from -2**63 to 2**63 - 1"
    assert message_of(case, ValueError).startswith(wanted)


# ---------------------------------------------------------------------------- lower-level functions


def functions_of(name: str) -> list[str]:
    return list(module_of(name).kernel.at(0).functions)


@functools.cache
def right_calls(name: str) -> dict[str, tuple[torch._ops.OpOverload, list]]:
    """A right call of each function of an op's kernel, as the op itself makes them."""
    module = module_of(name)
    given = inspect.signature(getattr(module, name)).parameters.keys() & {"dweight", "dbias"}
    in_bytes = getattr(module, f"{name}_fp8", None)
    with Calls(module.kernel.build.name) as calls:
        for case in CASES:
            if case.op.name == name:
                inputs = case.inputs(ROWS, COLS, torch.float32)
                case.ours(**inputs)
                outcome(case.ours, inputs)
                if in_bytes and not case.options:
                    in_bytes(**inputs)
                buffers = {buffer: torch.zeros(COLS, device=DEVICE) for buffer in given}
                if buffers:
                    outcome(functools.partial(case.ours, **buffers), inputs)
                if "multiply_into" in functions_of(name):
                    x, w = inputs["x"], inputs["w"]
                    module.kernel.multiply_into(x @ w.mT, x, w, True, 0)
    return {op._opname: (op, arguments) for op, arguments in calls.noted}


FUNCTIONS = [(name, function) for name in reference.OPS for function in functions_of(name)]


@pytest.mark.parametrize(("name", "function"), FUNCTIONS, ids=map("-".join, FUNCTIONS))
def test_every_function_checks_every_tensor(name: str, function: str):
    """Also those that only formulas call: an unchecked one reads past the end of its tensors."""
    op, arguments = right_calls(name)[function]
    op(*map(copied, arguments))
    assert_each_tensor_is_checked(op, arguments)


@pytest.mark.parametrize(
    ("name", "option", "value", "wanted"),
    [
        (
            "cross_entropy",
            "reduction",
            3,
            "reduction is 3; wanted is 0 (none), 1 (mean) or 2 (sum)",
        ),
        ("cross_entropy", "label_smoothing", 1.5, "label_smoothing is 1.5"),
        ("cross_entropy", "label_smoothing", float("nan"), "label_smoothing is nan"),
        ("dropout_layer_norm", "p", -0.5, "p is -0.5"),
    ],
)
def test_every_function_checks_its_options(name: str, option: str, value: float, wanted: str):
    for op, arguments in right_calls(name).values():
        names = [argument.name for argument in op._schema.arguments]
        changed = [copied(a) for a in arguments]
        changed[names.index(option)] = value
        with pytest.raises(RuntimeError) as raised:
            op(*changed)
        assert str(raised.value).startswith(wanted)


@pytest.mark.parametrize("name", reference.OPS)
def test_every_function_checks_its_version(name: str):
    """A number that is none would run some kernel or other."""
    checked = []
    for op, arguments in right_calls(name).values():
        names = [argument.name for argument in op._schema.arguments]
        last = len(module_of(name).VERSIONS) - 1
        for version in (-1, last + 1, 99):
            if "version" in names:
                changed = [copied(a) for a in arguments]
                changed[names.index("version")] = version
                with pytest.raises(RuntimeError) as raised:
                    op(*changed)
                wanted = f"version is {version}; wanted is an int from 0 to {last}"
                assert str(raised.value).startswith(wanted), op
                checked.append(op)
    assert checked
