"""The language model of chapter 13: with our ops and with PyTorch's, in one process and in two."""

import copy
import gc
import os
import re
import time
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import jitload
from kernels.rms_norm import rms_norm
from notebooks.training import cost, data, train
from notebooks.training.model import (
    AddNorm,
    Config,
    Decoder,
    FusedAddNorm,
    FusedLayerNorm,
    FusedRMSNorm,
    SwiGLU,
    TokenLoss,
    use_kernels,
)
from tests.helpers.threads import wait_for_others

DEVICE = jitload.device()
GPUS = torch.cuda.device_count() if DEVICE.type == "cuda" else 0
TINY = train.TINY.config
LLAMA = Config(norm="rms")
NOISY = Config(dropout=0.1)

each_config = pytest.mark.parametrize("config", [TINY, LLAMA, NOISY], ids=["layer", "rms", "drop"])


@pytest.fixture(autouse=True)
def one_thread():
    """Of PyTorch's: the model is so small that more would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def decoder(config: Config, dtype: torch.dtype = torch.float32, ours: bool = False) -> Decoder:
    """The same weights for a config, whatever the rest."""
    torch.manual_seed(0)
    model = Decoder(config).to(DEVICE, dtype)
    return use_kernels(model) if ours else model


def batch(step: int = 0, size: int = 4) -> tuple[Tensor, Tensor]:
    tokens, targets = data.batch(data.words(TINY.vocabulary), step, size, TINY.length)
    return tokens.to(DEVICE), targets.to(DEVICE)


def seed(number: int = 3) -> Tensor:
    return torch.tensor(number, device=DEVICE)


def results(model: Decoder, number: int | None = 3, step: int = 0) -> dict[str, Tensor]:
    """The losses, and every weight's gradient by its name; some tokens do not count.

    number: the seed of all masks.
    """
    device = model.embed.weight.device
    tokens, targets = (each.to(device) for each in batch(step))
    targets = targets.clone()
    targets[0, ::3] = -100
    model.zero_grad()
    losses = model(tokens, targets, None if number is None else seed(number).to(device))
    assert not losses[targets == -100].any()
    losses.sum(dtype=torch.promote_types(losses.dtype, torch.float32)).backward()
    return {"losses": losses.detach()} | {n: w.grad for n, w in model.named_parameters()}


def error(got: Tensor, truth: Tensor) -> float:
    """The largest difference, as a part of the largest number."""
    return ((got.double() - truth).abs().max() / truth.abs().max()).item()


# ---- the model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@each_config
def test_losses_and_gradients_are_as_good_as_pytorchs(config: Config, dtype: torch.dtype):
    """At most three times as far from the truth, as gradients of weights may be, or half an ULP.

    The mean of a few batches: the largest error of one is luck.
    """
    models = decoder(config, torch.float64), decoder(config, dtype), decoder(config, dtype, True)
    errors: dict[str, list[tuple[float, float]]] = {}
    for step in range(4):
        truth, theirs, ours = (results(model, step=step) for model in models)
        for name, want in truth.items():
            pair = error(theirs[name], want), error(ours[name], want)
            errors.setdefault(name, []).append(pair)
    for name, pairs in errors.items():
        theirs, ours = (sum(each) / len(pairs) for each in zip(*pairs, strict=True))
        assert ours <= max(3 * theirs, torch.finfo(dtype).eps / 2), name


@each_config
def test_in_float64_both_are_one_function(config: Config):
    ours = results(decoder(config, torch.float64, ours=True))
    theirs = results(decoder(config, torch.float64))
    for name, want in theirs.items():
        assert error(ours[name], want) < 1e-12, name


def test_dropout_draws_by_seed_by_module_and_only_in_training():
    model = decoder(NOISY, ours=True)
    tokens, targets = batch()
    first, again, other = (model(tokens, targets, seed(number)) for number in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(model(tokens, targets), model(tokens, targets)), "none is given"
    numbers = [module.number for module in model.modules() if isinstance(module, AddNorm)]
    assert len(set(numbers)) == len(numbers) == 2 * NOISY.layers
    model.eval()
    plain = decoder(TINY)
    torch.testing.assert_close(model(tokens, targets, seed()), plain(tokens, targets))


def test_no_op_does_dropout_with_an_rms_norm():
    with pytest.raises(ValueError, match=r"dropout is 0.1; beside norm='rms' wanted is 0"):
        Config(norm="rms", dropout=0.1)


def test_modules_become_ours_and_keep_what_they_have():
    called = []
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.RMSNorm(8, eps=1e-3)).to(DEVICE)
    model[1].register_forward_hook(lambda *_: called.append(1))
    x = torch.randn(5, 8, device=DEVICE)
    before, kept = model(x), list(model.parameters())
    assert use_kernels(model) is model
    assert [type(module) for module in model] == [nn.Linear, FusedLayerNorm, FusedRMSNorm]
    torch.testing.assert_close(model(x), before)
    assert all(a is b for a, b in zip(model.parameters(), kept, strict=True))
    assert len(called) == 2


@pytest.mark.parametrize(
    "norm",
    [
        nn.LayerNorm((2, 4)),
        nn.LayerNorm(4, bias=False),
        nn.LayerNorm(4, elementwise_affine=False),
        nn.RMSNorm(4, elementwise_affine=False),
    ],
)
def test_norms_that_are_no_op_of_ours_stay(norm: nn.Module):
    assert type(use_kernels(norm)) in (nn.LayerNorm, nn.RMSNorm)


@pytest.mark.parametrize("size", [1.0, 1e-4])
def test_an_rms_norm_without_eps_has_pytorchs(size: float):
    norm = nn.RMSNorm(64, device=DEVICE)
    x = size * torch.randn(3, 64, device=DEVICE)
    want = norm(x)
    torch.testing.assert_close(use_kernels(norm)(x), want)


@each_config
def test_checkpoints_fit_in_both_directions(config: Config):
    ours, theirs = decoder(config, ours=True), decoder(config)
    assert any(isinstance(module, FusedAddNorm) for module in ours.modules())
    with torch.no_grad():
        for weight in theirs.parameters():
            weight += 0.01
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(*batch(), seed()), theirs(*batch(), seed()))


# ---- training


@each_config
def test_training_lowers_the_loss_as_pytorchs_does(config: Config):
    def losses(dtype: torch.dtype, ours: bool) -> Tensor:
        steps = (batch(step, train.TINY.batch) for step in range(30))
        curve = train.fit(decoder(config, dtype, ours), steps, learning_rate=3e-3)
        return torch.tensor(curve.losses, dtype=torch.float64)

    truth, theirs = losses(torch.float64, ours=False), losses(torch.float32, ours=False)
    ours = losses(torch.float32, ours=True)
    assert ours[-1] < 0.85 * ours[0]
    unit = 8 * torch.finfo(torch.float32).eps  # of losses from 4 to 8, two of them
    assert (ours - truth).abs().mean() <= 3 * (theirs - truth).abs().mean() + unit


def test_small_weights_have_masters():
    """In bfloat16 alone a step of a thousandth would leave most weights as they are."""
    model = decoder(TINY, torch.bfloat16, ours=True)
    optimizer = train.Masters(model, 1e-4)
    before = [master.clone() for _, master in optimizer.copied]
    assert len(before) == len(list(model.parameters()))
    for _ in range(3):
        train.backward(model, *batch())
        optimizer.step()
    for (weight, master), was in zip(optimizer.copied, before, strict=True):
        assert master.dtype == torch.float32
        assert not torch.equal(master, was)
        assert torch.equal(weight, master.bfloat16())
        assert weight.grad is None


@pytest.mark.slow
def test_memory_does_not_grow_from_step_to_step():
    model = decoder(NOISY, ours=True)
    optimizer = train.Masters(model, 1e-3)

    def known() -> list[Tensor]:
        gc.collect()
        return [each for each in gc.get_objects() if issubclass(type(each), Tensor)]

    others = {id(tensor): weakref.ref(tensor) for tensor in known()}  # other tests' may go

    def held() -> tuple[int, int]:
        """Bytes of the tensors that Python knows of and did not before, and of the GPU."""
        mine = [t for t in known() if id(t) not in others or others[id(t)]() is not t]
        size = sum({t.untyped_storage().data_ptr(): t.nbytes for t in mine}.values())
        return size, torch.cuda.memory_allocated() if GPUS else 0

    after = []
    for step in range(9):
        train.backward(model, *batch(step), seed(step))
        optimizer.step()
        if step >= 3:  # the optimizer's moments and the libraries' own rooms are there by then
            after.append(held())
    assert len(set(after)) == 1


def test_activations_computed_again_see_the_same_masks():
    """By the seed; without one PyTorch's generator is put back for it."""
    kept, again = decoder(NOISY, ours=True), decoder(NOISY, ours=True)
    again.recompute = True
    for number in (3, None):
        torch.manual_seed(1)
        want = results(kept, number)
        torch.manual_seed(1)
        for name, got in results(again, number).items():
            assert error(got, want[name]) < 1e-5, name


@pytest.mark.slow
@each_config
def test_compiled_as_one_graph(config: Config):
    model, traced = decoder(config, ours=True), decoder(config, ours=True)
    torch.compiler.reset()
    traced.compile(fullgraph=True, backend="aot_eager")
    want = results(model)
    for name, got in results(traced).items():
        assert error(got, want[name]) < 1e-5, name


# ---- what a step costs


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("aten::addmm", "products"),
        ("matmul_0123::backward", "products"),
        ("aten::add.Tensor", "norms"),
        ("dropout_layer_norm_0123::forward", "norms"),
        ("aten::_scaled_dot_product_flash_attention", "attention"),
        ("attention_0123::forward", "attention"),
        ("aten::mul.Tensor", "activation"),
        ("swiglu_0123::backward", "activation"),
        ("aten::_log_softmax_backward_data", "loss"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::view", "rest"),
        ("aten::mul_", "rest"),
    ],
)
def test_kind_of_an_op(op: str, kind: str):
    assert cost.kind_of(op) == kind


@pytest.mark.parametrize(
    ("module", "shapes", "kind", "tensors"),
    [
        (AddNorm(Config(width=512), 0), [(4, 32, 512)] * 2, "norms", (5 + 6, 4 + 5)),
        (AddNorm(Config(width=512, norm="rms"), 0), [(4, 32, 512)] * 2, "norms", (None, 4 + 4)),
        (SwiGLU(), [(4, 32, 512)] * 2, "activation", (5 + 9, 3 + 5)),
        (TokenLoss(), [(4, 32, 512)], "loss", (2 + 4, 1 + 2)),
    ],
    ids=["add layer_norm", "add rms_norm", "swiglu", "loss"],
)
def test_traffic_is_what_the_chapter_counts(module, shapes, kind, tensors):
    for ours, count in enumerate(tensors):
        given = [torch.randn(shape, device=DEVICE).requires_grad_() for shape in shapes]
        more = [torch.randint(512, (4, 32), device=DEVICE)] * (kind == "loss")
        part = copy.deepcopy(module).to(DEVICE)
        with cost.Traffic() as traffic:
            out = (use_kernels(part) if ours else part)(*given, *more)
        out = out if isinstance(out, tuple) else (out,)
        arriving = [torch.ones_like(each) for each in out]
        with traffic:
            torch.autograd.grad(out, given, arriving)
        if count is not None:
            assert abs(traffic.bytes[kind] / given[0].nbytes - count) < 0.2


@pytest.mark.parametrize("ours", [False, True])
def test_profile_finds_every_kind_of_work(ours: bool):
    model = decoder(TINY, ours=ours)
    optimizer = train.Masters(model, 1e-3)

    def step() -> None:
        train.backward(model, *batch())
        optimizer.step()

    rows = cost.profiled(step, steps=2)
    seconds = cost.seconds_by_kind(rows)
    assert list(seconds) == list(cost.KINDS)
    assert all(seconds.values())
    assert [row.seconds for row in rows] == sorted((row.seconds for row in rows), reverse=True)
    (products,) = (row.calls for row in rows if row.op == "aten::mm")
    assert products == 3 * (5 * TINY.layers + 1)


@pytest.mark.gpu
@pytest.mark.skipif(not GPUS, reason="a CUDA graph needs a GPU")
@pytest.mark.parametrize("ours", [False, True])
def test_a_recorded_step_trains_as_its_calls_do(ours: bool):
    def trained(replayed: bool) -> float:
        model, given = decoder(TINY, ours=ours), batch()
        optimizer = train.Masters(model, 1e-3)

        def step() -> Tensor:
            loss = train.backward(model, *given)
            optimizer.step()
            return loss

        if not replayed:
            return [step() for _ in range(6)][-1].item()
        graph, loss = train.recorded(step)  # calls it three times before
        for _ in range(3):
            graph.replay()
        return loss.item()

    assert trained(replayed=True) == pytest.approx(trained(replayed=False), rel=1e-4)


def test_seconds_of_a_step_leave_out_the_first_three():
    calls = []

    def step() -> None:
        calls.append(len(calls))
        if DEVICE.type == "cpu":
            time.sleep(0.05 if len(calls) <= 3 else 0.001)

    seconds = train.seconds_of(step, steps=5)
    assert len(calls) == 8
    assert 0 < seconds < 0.05


# ---- data


def test_words_and_batches_are_the_same_in_every_process():
    text = data.words(256)
    assert text.dtype == torch.int64
    assert 0 <= text.min() < text.max() == 255
    for first, second in zip(data.batch(text, 5, 3, 8), data.batch(text, 5, 3, 8), strict=True):
        assert torch.equal(first, second)
    tokens, targets = data.batch(text, 5, 3, 8)
    assert tokens.shape == targets.shape == (3, 8)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    assert not torch.equal(tokens, data.batch(text, 6, 3, 8)[0])


# ---- several processes


def agrees_with_one_process(outcome: dict, steps: int) -> None:
    tiny = train.TINY
    assert outcome["processes"] == 2
    assert outcome["gradient_error"] < train.TOGETHER
    assert outcome["equal_weights"]
    steps = (batch(step, tiny.batch) for step in range(steps))
    model = decoder(tiny.config, ours=True)
    curve = train.fit(model, steps, learning_rate=tiny.learning_rate)
    torch.testing.assert_close(outcome["losses"], curve.losses, rtol=1e-4, atol=0)


@pytest.mark.slow
def test_two_processes_through_gloo_are_one(monkeypatch):
    """On a machine with GPUs they share the first."""
    if GPUS > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    outcome = train.launch("--check", "--setting", "tiny", "--steps", 8, processes=2)
    assert outcome["backend"] == "gloo"
    agrees_with_one_process(outcome, 8)


@pytest.mark.gpu
@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_two_gpus_through_nccl_are_one():
    outcome = train.launch("--check", "--setting", "tiny", "--steps", 8, processes=2)
    assert outcome["backend"] == "nccl"
    agrees_with_one_process(outcome, 8)


@pytest.mark.gpu
@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_all_kernels_run_where_the_model_is():
    """A binding without a device guard launches on the current GPU, which is number 0 here."""
    want = results(decoder(NOISY, ours=True))
    model = decoder(NOISY, ours=True).to("cuda:1")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        got = results(model)
        torch.cuda.synchronize(1)
    assert torch.cuda.current_device() == 0
    for name, there in got.items():
        assert there.device == torch.device("cuda:1")
        assert error(there.to(DEVICE), want[name]) < 1e-5, name
    ours = re.compile("layer_norm|swiglu|cross_entropy")
    calls = [event for event in profiled.events() if event.device_type == DeviceType.CPU]
    calls = [call for call in calls if ours.search(cost.owner_of(call))]
    launched = [kernel for call in calls for kernel in call.kernels]
    assert len(launched) >= 2 * (1 + 3 * NOISY.layers + 1), "forward and backward of each op"
    assert not [kernel.name for kernel in launched if kernel.device != 1]


@pytest.mark.slow
def test_a_process_that_fails_is_told():
    with pytest.raises(RuntimeError, match="torchrun: exit status"):
        train.launch("--setting", "tiny", "--heads", 7, processes=1)


def test_buffers_are_the_processes_own(tmp_path):
    """DistributedDataParallel waits for autograd's gradients, and never hears of a buffer's."""

    class Buffered(nn.RMSNorm):
        def forward(self, x: Tensor) -> Tensor:
            return rms_norm(x, self.weight, eps=1e-6, dweight=self.sums)

    norm = Buffered(8, device=DEVICE)
    norm.sums = torch.zeros(8, device=DEVICE)
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        spread = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8, device=DEVICE), norm))
        spread(torch.randn(4, 8, device=DEVICE)).square().sum().backward()
        # The group's end joins gloo's threads with the GIL held, and these need it to let their
        # work go: until they have, both would wait for each other.
        assert wait_for_others(looks=10)
    finally:
        torch.distributed.destroy_process_group()
    assert norm.sums.all()
    assert not norm.weight.grad.any()
