"""The transformer over this project's ops: as good as of PyTorch's modules, and less to keep."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import jitload
from notebooks.training import cost, data, train
from notebooks.training.transformer import (
    ALL_FUSED,
    LlamaConfig,
    Transformer,
    kept_by_part,
    kept_bytes,
    main,
    use_all_kernels,
)

DEVICE = jitload.device()
CONFIG = LlamaConfig()


@pytest.fixture(autouse=True)
def one_thread():
    """Of PyTorch's: the model is so small that more would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def transformer(
    dtype: torch.dtype = torch.float32, ours: bool = False, config: LlamaConfig = CONFIG
) -> nn.Module:
    torch.manual_seed(0)
    model = Transformer(config).to(DEVICE, dtype)
    return use_all_kernels(model) if ours else model


def batch(step: int = 0, size: int = 4) -> tuple[Tensor, Tensor]:
    tokens, targets = data.batch(data.words(CONFIG.vocabulary), step, size, CONFIG.length)
    return tokens.to(DEVICE), targets.to(DEVICE)


def results(model: nn.Module, step: int = 0) -> dict[str, Tensor]:
    """The loss, and every weight's gradient by its name; some tokens do not count."""
    device = next(model.parameters()).device
    tokens, targets = (each.to(device, copy=True) for each in batch(step))
    targets[0, ::3] = -100
    model.zero_grad()
    loss = model(tokens, targets)
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    return {"loss": loss.detach(), **gradients}


def error(got: Tensor, truth: Tensor) -> float:
    return ((got.double() - truth).abs().mean() / truth.abs().mean()).item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_losses_and_gradients_are_as_good_as_pytorchs(dtype: torch.dtype):
    """At most three times as far from the truth, as gradients of weights may be, or half an ULP."""
    truth = transformer(torch.float64)
    theirs, ours = transformer(dtype), transformer(dtype, ours=True)
    errors: dict[str, list[tuple[float, float]]] = {}
    for step in range(2):
        found = [results(model, step) for model in (truth, theirs, ours)]
        for name, want in found[0].items():
            pair = error(found[1][name], want), error(found[2][name], want)
            errors.setdefault(name, []).append(pair)
    for name, pairs in errors.items():
        of_theirs, of_ours = (sum(each) / len(pairs) for each in zip(*pairs, strict=True))
        assert of_ours <= max(3 * of_theirs, torch.finfo(dtype).eps / 2), name


def test_in_float64_both_are_one_function():
    ours, theirs = (
        results(transformer(torch.float64, ours=True)),
        results(transformer(torch.float64)),
    )
    for name, want in theirs.items():
        assert error(ours[name], want) < 1e-11, name


def test_every_module_that_has_an_op_is_ours():
    model = transformer(ours=True)
    assert not {type(module) for module in model.modules()} & set(ALL_FUSED)
    theirs = transformer()
    theirs.load_state_dict(model.state_dict())
    torch.testing.assert_close(theirs(*batch()), model(*batch()))


def test_training_lowers_the_loss_as_pytorchs_does():
    def losses(dtype: torch.dtype, ours: bool) -> Tensor:
        steps = (batch(step, train.TINY.batch) for step in range(30))
        model = transformer(dtype, ours)
        curve = train.fit(model, steps, learning_rate=3e-3, seeded=False)
        return torch.tensor(curve.losses, dtype=torch.float64)

    truth, theirs = losses(torch.float64, ours=False), losses(torch.float32, ours=False)
    ours = losses(torch.float32, ours=True)
    assert ours[-1] < 0.85 * ours[0]
    unit = 8 * torch.finfo(torch.float32).eps  # of losses from 4 to 8, two of them
    assert (ours - truth).abs().mean() <= 3 * (theirs - truth).abs().mean() + unit


@pytest.mark.parametrize("layers", [2, 12])
def test_less_is_kept_for_backward(layers: int):
    config = LlamaConfig(layers=layers, vocabulary=2048)
    models = (transformer(ours=ours, config=config) for ours in (True, False))
    ours, theirs = (kept_bytes(model, *batch()) for model in models)
    assert ours < 0.75 * theirs, ours / theirs


def test_no_part_keeps_more_than_pytorchs():
    tokens, targets = batch()
    ours, theirs = (kept_by_part(transformer(ours=ours), tokens, targets) for ours in (True, False))
    assert set(ours) == set(theirs)
    for part in ("attention", "after_attention", "gated", "after_gated", "head"):
        assert ours[part] <= theirs[part], part
    gate_and_up = CONFIG.layers * tokens.numel() * 2 * CONFIG.hidden * 4
    assert gate_and_up < ours["gated"] < 2 * gate_and_up


def test_compiled_as_one_graph():
    model, traced = transformer(ours=True), transformer(ours=True)
    torch.compiler.reset()
    traced.compile(fullgraph=True, backend="aot_eager")
    want = results(model)
    for name, got in results(traced).items():
        assert error(got, want[name]) < 1e-5, name


@pytest.mark.parametrize("changes", [{"norm": "layer"}, {"heads": 3}, {"kv_heads": 3}], ids=str)
def test_sizes_that_do_not_fit_are_told(changes: dict):
    with pytest.raises(ValueError, match="wanted"):
        Transformer(LlamaConfig(**changes))


def test_the_program_tells_time_memory_and_loss(capsys):
    main(["--layers", "1", "--steps", "4", "--ways", "ours", "eager"])
    ours, eager = capsys.readouterr().out.splitlines()
    assert ours.startswith("1 layers, ours: ")
    losses = [float(line.rpartition(" ")[2]) for line in (ours, eager)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


# ---- several processes, several GPUs

GPUS = torch.cuda.device_count() if DEVICE.type == "cuda" else 0


def run_in_two_processes(gpus: str | None = None) -> str:
    script = Path(__file__).parents[1] / "helpers/transformer_processes.py"
    how = ["--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2"]
    answer = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *how, script],
        env=os.environ
        | {"OMP_NUM_THREADS": "1"}
        | ({"CUDA_VISIBLE_DEVICES": gpus} if gpus else {}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert answer.returncode == 0, f"{answer.stdout[-3000:]}\n{answer.stderr[-5000:]}"
    return answer.stdout


@pytest.mark.slow
def test_two_processes_through_gloo_are_one():
    """On a machine with GPUs they share the first."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    assert "2 by gloo" in run_in_two_processes(visible)


@pytest.mark.gpu
@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_two_gpus_through_nccl_are_one():
    assert "2 by nccl" in run_in_two_processes()


@pytest.mark.gpu
@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_all_kernels_run_where_the_model_is():
    """A binding without a device guard launches on the current GPU, which is number 0 here."""
    want = results(transformer(ours=True))
    model = transformer(ours=True).to("cuda:1")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        got = results(model)
        torch.cuda.synchronize(1)
    assert torch.cuda.current_device() == 0
    for name, there in got.items():
        assert there.device == torch.device("cuda:1")
        assert error(there.to(DEVICE), want[name].double()) < 1e-5, name
    ours = re.compile("matmul|rope|attention|rms_norm|cross_entropy")
    calls = [event for event in profiled.events() if event.device_type == DeviceType.CPU]
    calls = [call for call in calls if ours.search(cost.owner_of(call))]
    launched = [kernel for call in calls for kernel in call.kernels]
    assert len(launched) >= 2 * (8 * CONFIG.layers + 2), "forward and backward of each op"
    assert not [kernel.name for kernel in launched if kernel.device != 1]
