"""Judges of chapter 10: cross_entropy."""

import torch

from lab.course.exercise import Claim, Speed, answer, kernel

SHAPES = ((1, 1), (3, 31), (9, 32), (2, 33), (5, 1000))
IGNORE = -100


def logits(rows: int, cols: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and targets."""
    generator = torch.Generator().manual_seed(rows + cols)
    x = 5 * torch.randn(rows, cols, generator=generator)
    return x, torch.randint(cols, (rows,), generator=generator)


def close(got: torch.Tensor, truth: torch.Tensor, case: str) -> Claim:
    """To 5 digits of what is not below 1; beyond them every machine's exp is its own."""
    got, want = got.cpu().double().flatten(), truth.flatten()
    error = ((got - want).abs() / want.abs().clamp(min=1)).nan_to_num(nan=torch.inf)
    at = int(error.argmax())
    return Claim(
        error[at].item() < 1e-5,
        f"{case}: element {at} is {got[at].item():.7g}, wanted {want[at].item():.7g}",
    )


@kernel(lines=35)
def smoothing(attempt):
    """Also for logits that are all large."""
    for rows, cols in SHAPES:
        for shift, part in [(0, 0.0), (0, 0.125), (2**16, 0.125), (0, 1.0)]:
            x, target = logits(rows, cols)
            x = x + shift
            loss = attempt.empty(rows)
            there = attempt.tensor(x)
            attempt(there, target.to(there.device), loss, rows, cols, part)
            truth = torch.nn.functional.cross_entropy(
                x.double(), target, reduction="none", label_smoothing=part
            )
            yield close(loss, truth, f"{rows} x {cols}, smoothing {part}, {shift} added")


@kernel(lines=22)
def gradient(attempt):
    """In the place of the logits, with rows that do not count."""
    for rows, cols in SHAPES:
        x, target = logits(rows, cols)
        target[::3] = IGNORE
        x = x.double().requires_grad_()
        loss = torch.nn.functional.cross_entropy(x, target, reduction="sum", ignore_index=IGNORE)
        (wanted,) = torch.autograd.grad(loss, x, torch.tensor(8.0).double())
        x = x.detach()
        most = x.amax(-1)
        total = (x - most[:, None]).exp().sum(-1)
        there, most, total = (attempt.tensor(each.float()) for each in (x, most, total))
        attempt(there, target.to(there.device), most, total, 8.0, IGNORE, rows, cols)
        yield close(there, wanted, f"{rows} x {cols}")

    def prepare():
        x = attempt.large(1 << 16, 4096)
        target, ones = x.new_zeros(len(x), dtype=torch.int64), x.new_ones(len(x))
        return lambda: attempt.launch(x, target, ones, ones, 1.0, IGNORE, *x.shape), 2 * x.nbytes

    yield Speed(prepare, 50)


@kernel(lines=30, bug=True)
def ignored(attempt):
    """Whichever rows are ignored."""
    for rows, cols in SHAPES[1:]:
        for ignored_rows in ([], [rows - 1], [0], [0, 1]):
            x, target = logits(rows, cols)
            target[ignored_rows] = IGNORE
            there, total = attempt.tensor(x), attempt.tensor(torch.zeros(1))
            attempt(there, target.to(there.device), total, IGNORE, rows, cols)
            truth = torch.nn.functional.cross_entropy(
                x.double(), target, reduction="sum", ignore_index=IGNORE
            )
            yield close(total, truth, f"{rows} x {cols}, of which {ignored_rows} are ignored")


@answer
def bytes(given):
    """Bytes that a step moves less where log_p and its gradient are never written."""
    for tokens, vocabulary, itemsize in [(8192, 128_256, 2), (1000, 50_257, 4)]:
        wanted, got = 3 * tokens * vocabulary * itemsize, given(tokens, vocabulary, itemsize)
        yield Claim(
            got is not ... and got == wanted,
            f"{tokens} tokens, {vocabulary} words, {itemsize} bytes: got {got}. How many tensors of"
            " that size does each of the two ways move, forward and backward?",
        )


@answer
def accumulate(given):
    """The mean over several batches, as if they were one."""

    def cross_entropy(x, target, **options):
        return torch.nn.functional.cross_entropy(x, target, ignore_index=IGNORE, **options)

    for counts in [(8, 8), (8, 1), (3, 8, 5)]:
        batches = [logits(8, 10 + k) for k in range(len(counts))]
        batches = [(x[:, :10].double(), target % 10) for x, target in batches]
        for count, (_, target) in zip(counts, batches, strict=True):
            target[count:] = IGNORE
        whole = [torch.cat(parts) for parts in zip(*batches, strict=True)]
        wanted = cross_entropy(*whole).item()
        got = given(batches, cross_entropy, IGNORE)
        yield Claim(got is not ..., "no answer yet: put it in place of ...")
        yield Claim(
            abs(float(got) - wanted) < 1e-9,
            f"batches in which {counts} of 8 rows count: got {float(got):.6f}, but all of them at"
            f" once give {wanted:.6f}. What is the mean divided by?",
        )


@answer
def break_log_sum(given):
    """A row whose loss is lost when it is log(sum of e^x), as one number, less x[0]."""
    yield Claim(
        isinstance(given, torch.Tensor) and given.dtype == torch.float32 and given.dim() == 1,
        "wanted is a float32 tensor of one dimension",
    )
    yield Claim(2 <= given.numel() <= 64, f"{given.numel()} numbers; wanted are 2 to 64")
    yield Claim(bool(given.isfinite().all()), "all must be finite")
    most = given.max()
    log_sum = most + (given - most).exp().sum().log()
    got = (log_sum - given[0]).item()
    truth = (given.double().logsumexp(-1) - given[0].double()).item()
    yield Claim(truth > 0.5, f"the loss is {truth:.4g}; wanted is one of more than 0.5")
    yield Claim(got == 0, f"the loss is {truth:.6g}, and as a difference it is still {got:.6g}")
