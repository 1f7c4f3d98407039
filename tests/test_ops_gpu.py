"""What only a GPU can show: more than 2^31 elements, other streams, a second device."""

import pytest
import torch
from op_cases import BEST, CASES, DEVICE, Case, module_of, outcome

import reference

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE.type != "cuda", reason="the simulator has one stream and one device"),
]

each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_best = pytest.mark.parametrize("case", BEST, ids=str)
NEEDED = 40 << 30  # bytes: eight tensors of 2^31 bfloat16, and room to move


def skip_unless_large() -> None:
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    if free < NEEDED:
        pytest.skip(f"{free >> 30} GiB of GPU memory are free; this test needs {NEEDED >> 30}")


def big_inputs(case: Case, rows: int, cols: int) -> dict[str, torch.Tensor]:
    """bfloat16, all zero but for the last row: what leaves there must have come from there."""
    inputs = case.inputs(1, cols, torch.bfloat16)
    last = inputs["x"]
    inputs["x"] = torch.zeros(rows, cols, dtype=torch.bfloat16, device=DEVICE)
    inputs["x"][-1:] = last
    return inputs


# 4104 columns pass 2^31 in the middle of a row; 4099 are no multiple of the vector.
@pytest.mark.parametrize(("rows", "cols"), [(2**19 + 3, 4104), (2**19 + 3, 4099), (2**31 + 8, 1)])
@each_case
def test_more_than_two_to_the_31_elements(case: Case, rows: int, cols: int):
    skip_unless_large()
    inputs = big_inputs(case, rows, cols)
    y = case.ours(**inputs)
    if case.options == {"dim": None}:
        # Zeros add nothing; the chunks of the sum differ, so the last bit may.
        torch.testing.assert_close(y, case.ours(**inputs | {"x": inputs["x"][-1:]}))
    else:
        assert torch.equal(y[-1:], case.ours(**inputs | {"x": inputs["x"][-1:]}))
        assert torch.equal(y[:1], case.ours(**inputs | {"x": inputs["x"][:1]}))


@pytest.mark.parametrize(("rows", "cols"), [(2**19 + 3, 4104), (2**19 + 3, 4099)])
@pytest.mark.parametrize("case", [c for c in CASES if c.op.name != "reduce_sum"], ids=str)
def test_backward_of_more_than_two_to_the_31_elements(case: Case, rows: int, cols: int):
    skip_unless_large()
    inputs = big_inputs(case, rows, cols)
    grad = torch.zeros_like(inputs["x"])
    grad[-1] = 1
    got = outcome(case.ours, inputs, grad)
    want = outcome(case.ours, inputs | {"x": inputs["x"][-1:]}, grad[-1:])
    assert torch.equal(got["dx"][-1:], want["dx"])
    assert not got["dx"][:-1].any()
    for name in case.op.shapes.keys() - {"x"}:
        assert torch.equal(got[f"d{name}"], want[f"d{name}"]), name


@each_best
def test_runs_on_the_current_stream(case: Case):
    inputs = case.inputs(64, 256, torch.float32)
    want = outcome(case.ours, inputs)
    late = {name: torch.zeros_like(tensor) for name, tensor in inputs.items()}
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)  # a kernel on any other stream would read the zeros
        for name, tensor in inputs.items():
            late[name].copy_(tensor)
        got = outcome(case.ours, late)
        torch.cuda.current_stream().synchronize()
    for name in want:
        assert torch.equal(got[name], want[name]), name


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@each_best
def test_runs_where_its_input_is(case: Case):
    inputs = case.inputs(64, 256, torch.float32)
    want = outcome(case.ours, inputs)
    got = outcome(case.ours, {name: tensor.to("cuda:1") for name, tensor in inputs.items()})
    assert torch.cuda.current_device() == 0
    for name in want:
        assert got[name].device == torch.device("cuda:1")
        torch.testing.assert_close(got[name].to(DEVICE), want[name])


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("version", module_of("layer_norm").VERSIONS)
def test_tensors_on_two_gpus_are_refused(version: str):
    case = Case(reference.OPS["layer_norm"], version, {})
    inputs = case.inputs(3, 8, torch.float32)
    inputs["bias"] = inputs["bias"].to("cuda:1")
    with pytest.raises(RuntimeError, match="bias is on cuda:1, but x is on cuda:0"):
        case.ours(**inputs)
