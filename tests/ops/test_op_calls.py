"""The ops that `reference.OPS` does not have in the families of tests of those that it has.

That they are right, in which shapes and layouts, and what they refuse, each one's own file tests.
"""

import gc
import threading
from dataclasses import replace
from itertools import cycle, islice

import pytest
import torch
from op_calls import (
    BEST_CALLS,
    CALLS,
    DRAWN,
    Call,
    assert_same_bits,
    functions,
    moved,
)
from op_cases import DEVICE, Calls, by_name, cast_by_hand, module_of
from torch import Tensor
from wrong_calls import assert_each_tensor_is_checked

each_call = pytest.mark.parametrize("call", CALLS, ids=str)
each_best = pytest.mark.parametrize("call", BEST_CALLS, ids=str)
FIRST_CALLS = [*{call.name: call for call in reversed(BEST_CALLS)}.values()]
each_op = pytest.mark.parametrize("call", FIRST_CALLS, ids=str)
on_a_gpu = pytest.mark.skipif(
    DEVICE.type != "cuda", reason="the simulator has one stream, no graphs and one device"
)
# All of opcheck but test_schema, which multiplies the inputs: PyTorch does not multiply fp8.
UTILITIES = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
WIDE, FLOAT4 = (torch.float32, torch.bfloat16), torch.float4_e2m1fn_x2
on_two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def test_every_op_is_called():
    """A new op that `reference.OPS` does not have wants its arguments in helpers/op_calls.py."""
    assert functions().keys() == DRAWN.keys()


@pytest.mark.parametrize(
    "call",
    [pytest.param(call, marks=[pytest.mark.slow] * (not call.is_best)) for call in CALLS],
    ids=str,
)
def test_same_bits_on_every_run(call: Call):
    inputs = call.inputs()
    assert_same_bits(call.outcome(inputs), call.outcome(inputs))


@each_op
def test_threads_do_not_disturb_each_other(call: Call):
    inputs = [call.inputs(seed) for seed in range(2)]
    want = [call.outcome(given) for given in inputs]
    got: dict[int, list[dict[str, Tensor]]] = {turn: [] for turn in range(2)}

    def work(turn: int) -> None:
        for _ in range(2):
            got[turn].append(call.outcome(inputs[turn]))

    threads = [threading.Thread(target=work, args=(turn,)) for turn in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for turn, outcomes in got.items():
        assert len(outcomes) == 2
        for outcome in outcomes:
            assert_same_bits(outcome, want[turn])


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_many_calls_grow_nothing(name: str):
    calls = [(call, call.inputs()) for call in BEST_CALLS if call.name == name]

    def repeat(times: int) -> int:
        for call, inputs in islice(cycle(calls), times):
            call.outcome(inputs)
        gc.collect()
        return len(gc.get_objects())

    living = repeat(10)
    on_gpu = torch.cuda.memory_allocated() if DEVICE.type == "cuda" else 0
    assert repeat(60) - living < 30
    if DEVICE.type == "cuda":
        assert torch.cuda.memory_allocated() == on_gpu


@each_best
def test_every_function_checks_every_tensor(call: Call):
    """Also those that only formulas call: an unchecked one reads past the end of its tensors."""
    inputs = call.inputs()
    with Calls(module_of(call.module).kernel.build.name) as calls:
        call.ours(**inputs)
        call.outcome(inputs)
    assert calls.noted
    for op, arguments in calls.noted:
        assert_each_tensor_is_checked(op, arguments)


@each_best
def test_autocast_casts_what_is_registered(call: Call):
    """Inputs are bfloat16."""
    inputs = call.inputs()
    with torch.autocast(DEVICE.type, dtype=torch.float16):
        got = call.outcome(inputs)
    given = cast_by_hand(module_of(call.module).kernel, inputs, torch.float16)
    want = call.outcome(given)
    for name in inputs:
        if f"d{name}" in want:
            want[f"d{name}"] = want[f"d{name}"].to(inputs[name].dtype)
    assert_same_bits(got, want)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, marks=[pytest.mark.slow] * (call not in FIRST_CALLS))
        for call in BEST_CALLS
    ],
    ids=str,
)
def test_opcheck_and_compile(call: Call):
    inputs = call.inputs()
    module = module_of(call.module)
    with Calls(module.kernel.build.name) as calls:
        want = call.outcome(inputs)
    assert calls.noted
    for op, arguments in calls.noted:
        utilities = UTILITIES
        if not any(isinstance(it, Tensor) and it.dtype.itemsize == 1 for it in arguments):
            utilities = ("test_schema", *UTILITIES)
        torch.library.opcheck(op, tuple(arguments), test_utils=utilities)
    torch.compiler.reset()
    compiled = torch.compile(getattr(module, call.name), fullgraph=True, backend="aot_eager")
    assert_same_bits(call.outcome(inputs, compiled), want)


# matmul_block_scaled's tensors are all of too few bits for a gradient.
@pytest.mark.parametrize(
    "call", [call for call in FIRST_CALLS if call.name != "matmul_block_scaled"], ids=str
)
def test_a_derivative_that_there_is_not(call: Call):
    inputs = call.inputs()
    first = next(t for t in inputs.values() if isinstance(t, Tensor) and t.dtype in WIDE)
    first.requires_grad_()
    results = by_name(call.ours(**inputs)).values()
    which, end = "gradient", sum(y.float().sum() for y in results if y.dtype != FLOAT4)
    if call.has_gradient:
        which = "second derivative"
        end = torch.autograd.grad(end, first, create_graph=True)[0].sum()
    with pytest.raises(RuntimeError, match=f"^{call.name} has no {which}; "):
        end.backward()


@pytest.mark.parametrize("call", [call for call in FIRST_CALLS if call.version], ids=str)
def test_unknown_version(call: Call):
    versions = ", ".join(module_of(call.module).VERSIONS)
    message = f"^version is 'best'; wanted is one of {versions}$"
    with pytest.raises(ValueError, match=message):
        replace(call, version="best").ours(**call.inputs())


# ---- what only a GPU can show


@pytest.mark.gpu
@on_a_gpu
@each_best
def test_runs_on_the_current_stream(call: Call):
    inputs = call.inputs()
    want = call.outcome(inputs)
    late = {n: torch.empty_like(v) if isinstance(v, Tensor) else v for n, v in inputs.items()}
    for value in late.values():
        if isinstance(value, Tensor):
            value.untyped_storage().fill_(0)  # for float4, too
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)  # a kernel on any other stream would read the zeros
        for name, value in inputs.items():
            if isinstance(value, Tensor):
                late[name].copy_(value)
        got = call.outcome(late)
        torch.cuda.current_stream().synchronize()
    assert_same_bits(got, want)


@pytest.mark.gpu
@on_a_gpu
@each_best
def test_captured_in_a_cuda_graph(call: Call):
    """Recorded once, with its gradients, then replayed on other numbers."""
    recorded = call.inputs()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # on which the inputs are made
    with torch.cuda.stream(stream):
        call.outcome(recorded)  # nothing may be set up for the first time while recording
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = call.outcome(recorded)
    for seed in (1, 2):
        fresh = call.inputs(seed)
        for name, value in fresh.items():
            if isinstance(value, Tensor):
                recorded[name].copy_(value)
        graph.replay()
        assert_same_bits(got, call.outcome(fresh))


def tensors_of(call: Call) -> list[str]:
    return [name for name, value in call.inputs().items() if isinstance(value, Tensor)]


@pytest.mark.gpu
@on_a_gpu
@each_best
def test_wrong_device(call: Call):
    """Each tensor in turn; the message names it, where it is and where it should be."""
    inputs = call.inputs()
    for name in tensors_of(call):
        with pytest.raises(RuntimeError, match=f"^{name} is on cpu.*(wanted is one device|cuda)"):
            call.ours(**inputs | {name: inputs[name].cpu()})


@pytest.mark.gpu
@on_two_gpus
@each_call
def test_runs_where_its_input_is(call: Call):
    inputs = call.inputs()
    want = call.outcome(inputs)
    got = call.outcome(moved(inputs, "cuda:1"))
    assert torch.cuda.current_device() == 0
    assert all(y.device == torch.device("cuda:1") for y in got.values())
    assert_same_bits({name: y.to(DEVICE) for name, y in got.items()}, want)


@pytest.mark.gpu
@on_two_gpus
@each_best
def test_tensors_on_two_gpus_are_refused(call: Call):
    inputs = call.inputs()
    first, *others = tensors_of(call)
    for name in others:
        message = f"{name} is on cuda:1, but {first} is on cuda:0"
        with pytest.raises(RuntimeError, match=message):
            call.ours(**inputs | {name: inputs[name].to("cuda:1")})
