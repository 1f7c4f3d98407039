"""The package's operators against their references, on every device that is here."""

import functools
import importlib
import json
from pathlib import Path

import pytest
import torch

import PACKAGE
from PACKAGE import cases
from PACKAGE.reference import OPS

DEVICES = cases.devices()
CASES = [case for device in DEVICES for case in cases.cases(device)]
PLAN = json.loads((Path(PACKAGE.__file__).parent / "csrc/kernels.json").read_text())
on_every_device = pytest.mark.parametrize("device", DEVICES)
of_every_op = pytest.mark.parametrize("name", list(OPS))


# Whether PyTorch knows an op's functions as operators whose results' shapes it is told.
IN_GRAPHS = {kernel["name"]: kernel["in_graphs"] for kernel in PLAN["kernels"]}


def first(name: str, device: str) -> cases.Case:
    return cases.first_case(name, device, 3, 40)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_error(case):
    judgement = cases.judged(case)
    assert judgement.holds, judgement


@on_every_device
@of_every_op
def test_opcheck(name, device):
    """Schema, fake implementation, gradient and tracing, as PyTorch's own tests have them."""
    if not IN_GRAPHS[name]:
        pytest.skip("its functions are no operators that PyTorch can trace")
    case = first(name, device)
    calls = []

    class Noted(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            if op.namespace in NAMESPACES:
                calls.append((op, args))
            return op(*args, **(kwargs or {}))

    with Noted(), torch.no_grad():
        case.ours(**case.inputs())
    assert calls
    for op, args in calls:
        torch.library.opcheck(op, tuple(a.detach() if hasattr(a, "detach") else a for a in args))


NAMESPACES = {kernel["namespace"] for kernel in PLAN["kernels"]}


@on_every_device
@of_every_op
def test_compiled(name, device):
    """In one graph, if it can be in one."""
    case = first(name, device)
    inputs = case.inputs()
    function = functools.partial(cases.function_of(name), **case.options)
    compiled = torch.compile(function, fullgraph=IN_GRAPHS[name])
    wanted, got = function(**inputs), compiled(**inputs)
    if isinstance(wanted, torch.Tensor):
        wanted, got = (wanted,), (got,)
    for one, other in zip(wanted, got, strict=True):
        assert torch.equal(one, other)


@on_every_device
@of_every_op
def test_gradients_of_a_compiled_function(name, device):
    case = first(name, device)
    if not cases.has_gradient(case):
        pytest.skip("it has no gradient")
    leaves = {key: it.requires_grad_(it.is_floating_point()) for key, it in case.inputs().items()}
    wanted = [it for it in leaves.values() if it.requires_grad]
    function = functools.partial(cases.function_of(name), **case.options)

    def gradients(call):
        outputs = call(**leaves)
        ends = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        return torch.autograd.grad(sum(y.float().sum() for y in ends), wanted)

    compiled = torch.compile(function, fullgraph=IN_GRAPHS[name])
    for one, other in zip(gradients(function), gradients(compiled), strict=True):
        torch.testing.assert_close(one, other)


@of_every_op
def test_a_type_that_no_kernel_has(name):
    case = first(name, "cpu")
    inputs = case.inputs()
    inputs[next(iter(OPS[name].shapes))] = torch.zeros(3, 40, dtype=torch.int32)
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        case.ours(**inputs)


def test_every_name_is_there():
    for name in PACKAGE.__all__:
        assert callable(getattr(PACKAGE, name))
    for kernel in PLAN["kernels"]:
        importlib.import_module(f"PACKAGE.ops.{kernel['name']}")
