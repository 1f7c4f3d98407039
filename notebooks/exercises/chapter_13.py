"""Judges of chapter 13: training."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

import jitload
from kernels.rms_norm import kernel as rms_norm_kernel
from kernels.rms_norm import rms_norm
from lab.course.exercise import Claim, Speed, answer, answer_with_bug, kernel
from notebooks.training.cost import Traffic

DEVICE = jitload.device()


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@answer
def module(given):
    """A module over rms_norm that takes the place of nn.RMSNorm."""
    for eps in (None, 1e-3):
        theirs, ours = nn.RMSNorm(24, eps=eps), given(24, eps=eps)
        names = list(ours.state_dict())
        yield Claim(names == ["weight"], f"its state_dict holds {names}; nn.RMSNorm's: ['weight']")
        theirs.load_state_dict({"weight": noise(24)})
        ours.load_state_dict(theirs.state_dict())
        theirs.load_state_dict(ours.state_dict())
        theirs.to(DEVICE), ours.to(DEVICE)
        for shape, size in [((5, 24), 1.0), ((2, 3, 24), 1e-3), ((24,), 1e-5)]:
            x, g = size * noise(*shape).to(DEVICE), noise(*shape, seed=1).to(DEVICE)
            results = []
            for norm in (ours, theirs):
                leaf = x.clone().requires_grad_()
                with Traffic() as traffic:
                    y = norm(leaf)
                results.append([y, *torch.autograd.grad(y, [leaf, norm.weight], g)])
                called = any(rms_norm_kernel.library.stem in name for name, *_ in traffic.ops)
                yield Claim(called or norm is theirs, "it does not call rms_norm")
            for what, got, want in zip(("y", "dx", "dweight"), *results, strict=True):
                off = ((got - want).abs().max() / want.abs().max()).item()
                case = f"x {list(shape)} of size {size:g}, eps {eps}"
                yield Claim(off < 1e-4, f"{case}: {what} is off by {off:.2g} of its largest number")


@answer
def accumulate(given):
    """A norm that adds the gradients of its weight up in float32, in a buffer of its own."""
    norm = given(24)
    names = list(norm.state_dict())
    yield Claim(names == ["weight"], f"its state_dict holds {names}; wanted is ['weight']")
    norm.load_state_dict({"weight": noise(24)})
    norm.to(DEVICE, torch.bfloat16)
    truth = torch.zeros(24, dtype=torch.float64, device=DEVICE)
    for step in range(1, 33):
        x, g = (noise(5, 24, seed=2 * step + k).bfloat16().to(DEVICE) for k in (0, 1))
        norm(x).backward(g)
        exact = norm.weight.detach().double().requires_grad_()
        rms_norm(x.double(), exact, eps=norm.eps).backward(g.double())
        truth += exact.grad
        kind = str(norm.main_grad.dtype).removeprefix("torch.")
        yield Claim(kind == "float32", f"main_grad is {kind} after .to(torch.bfloat16)")
        off = ((norm.main_grad - truth).abs().max() / truth.abs().max()).item()
        case = f"after {step} micro-batches main_grad is off by {off:.2g} of its largest number"
        yield Claim(off < 1e-5, case)
    yield Claim(norm.weight.grad is None, "weight.grad has a gradient, too")


@kernel(lines=25)
def adamw(attempt):
    """Several steps, as torch.optim.AdamW takes them in float64; the copy is the rounded weight."""
    rate, decay = 0.01, 0.1
    for n in (1, 255, 1000):
        weight, *gradients = noise(4, n)
        truth = weight.double().requires_grad_()
        optimizer = torch.optim.AdamW([truth], rate, weight_decay=decay)
        w, m, v = (attempt.tensor(each) for each in (weight, torch.zeros(n), torch.zeros(n)))
        small = attempt.empty(n, dtype=torch.bfloat16)
        for t, gradient in enumerate(gradients, 1):
            g = gradient.bfloat16()
            truth.grad = g.double()
            optimizer.step()
            attempt(attempt.tensor(g), w, m, v, small, n, rate, decay, t)
            off = (w.cpu() - truth.detach()).abs()
            at = int(off.nan_to_num(nan=math.inf).argmax())
            yield Claim(
                off.max().item() < 2e-6,
                f"{n} weights, step {t}: weight {at} was {weight[at].item():.6f} at first, is"
                f" {w[at].item():.6f}, wanted {truth[at].item():.6f}",
            )
            same = torch.equal(small.cpu(), w.cpu().bfloat16())
            yield Claim(same, f"{n} weights, step {t}: the copy is not the rounded weight")

    def prepare():
        w = attempt.large(1 << 26).abs()
        m, v, g, small, n = w.clone(), w.clone(), w.bfloat16(), w.bfloat16(), w.numel()
        size = 2 * g.nbytes + 6 * w.nbytes
        return lambda: attempt.launch(g, w, m, v, small, n, rate, decay, 1), size

    yield Speed(prepare, 50)


@answer
def amdahl(given):
    """How many times as fast a step is, of which parts are made faster."""
    step = {"products": 0.030, "norms": 0.006, "activation": 0.003, "loss": 0.001}
    for factors, after in [
        ({}, 0.040),
        ({"norms": 2.0}, 0.037),
        ({"norms": 2.0, "activation": 1.5, "loss": 4.0}, 0.03525),
        ({"norms": math.inf, "activation": math.inf, "loss": math.inf}, 0.030),
        ({"products": 0.5}, 0.070),
    ]:
        got, wanted = given(dict(step), dict(factors)), sum(step.values()) / after
        yield Claim(
            got is not ... and math.isclose(got, wanted),
            f"{step} with factors {factors}: got {got}. How long is the step then, and how long"
            " was it?",
        )


@answer
def break_weight(given):
    """A weight that a thousand updates leave as it is in bfloat16, and make 4 times in float32."""
    yield Claim(isinstance(given, tuple) and len(given) == 2, "wanted is (weight, update)")
    yield Claim(... not in given, "no answer yet: put two numbers in place of ...")
    weight, update = (torch.tensor(float(each)) for each in given)
    for name, each in (("weight", weight), ("update", update)):
        fits = bool(each.isfinite() & (each > 0) & (each == each.bfloat16()))
        yield Claim(fits, f"the {name} is {each.item():.9g}: no bfloat16 above 0")
    wide, small = weight.clone(), weight.bfloat16()
    for _ in range(1000):
        wide += update
        small += update.bfloat16()
    times = (wide / weight).item()
    yield Claim(bool(small == weight), f"in bfloat16 {weight.item():g} has become {small.item():g}")
    yield Claim(times >= 4, f"in float32 it has become {times:.3g} times as large; wanted is 4")


@answer_with_bug
def seed(given):
    """A module that drops other elements in each call, and nothing where it does not train."""
    p, width = 0.5, 64
    x, residual = torch.ones(2, 8, width, device=DEVICE)

    def dropped(norm: nn.Module) -> torch.Tensor:
        return norm(x, residual)[1] == 1

    torch.manual_seed(0)
    norm, other = given(width, p).to(DEVICE), given(width, p).to(DEVICE)
    first, second, others = dropped(norm), dropped(norm), dropped(other)
    share = first.float().mean().item()
    yield Claim(0.3 < share < 0.7, f"p = {p}, and {share:.0%} are dropped")
    yield Claim(
        not torch.equal(first, second),
        "two calls drop the same elements. When is the seed drawn, and how often is that?",
    )
    yield Claim(not torch.equal(first, others), "two modules drop the same elements")
    torch.manual_seed(1)
    again = dropped(norm)
    torch.manual_seed(1)
    yield Claim(torch.equal(again, dropped(norm)), "torch.manual_seed does not repeat the mask")

    leaf = x.clone().requires_grad_()
    s = norm(leaf, residual)[1]
    norm(x, residual)
    (dx,) = torch.autograd.grad(s.sum(), leaf)
    yield Claim(torch.equal(dx == 0, s == 1), "backward does not draw the mask of its forward")
    norm.eval()
    yield Claim(not dropped(norm).any(), "after .eval() elements are dropped")


class Meeting:
    """Adds tensors up over threads that stand for processes."""

    def __init__(self, processes: int) -> None:
        self.barrier = threading.Barrier(processes, timeout=5)
        self.parts: list[torch.Tensor] = []

    def add_up(self, part: torch.Tensor) -> torch.Tensor:
        self.parts.append(part)
        self.barrier.wait()
        total = sum(self.parts)
        self.barrier.wait()
        self.parts = []
        self.barrier.wait()
        return total


@answer_with_bug
def processes(given):
    """The loss whose gradients, averaged over processes, are those of the mean of all that count.

    Of a batch in equal parts, of a padded one, and where nothing counts in one process.
    """
    for counts in [(6, 6), (6, 2, 1), (0, 5)]:
        meeting, leaves, batches = Meeting(len(counts)), [], []
        for count in counts:
            targets = torch.where(torch.arange(6) < count, 1, -100)
            leaves.append(torch.ones(6, dtype=torch.float64, requires_grad=True))
            batches.append((leaves[-1] * (targets != -100), targets))
        with ThreadPoolExecutor(len(counts)) as threads:
            calls = [
                threads.submit(given, losses, targets, meeting.add_up, len(counts))
                for losses, targets in batches
            ]
            results = [call.result() for call in calls]
        yield Claim(... not in results, "no answer yet")
        for loss in results:
            loss.backward()
        for (_, targets), leaf in zip(batches, leaves, strict=True):
            got, wanted = leaf.grad / len(counts), (targets != -100).double() / sum(counts)
            yield Claim(
                bool((got - wanted).abs().max() < 1e-12),
                f"{counts} words count in {len(counts)} processes: the gradient of a loss that"
                f" counts comes out as {got.max().item():.4g}, wanted is 1 / {sum(counts)}",
            )
