"""Judges of chapter 19: what a transformer's step computes, keeps, and need not store."""

import math

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import lab
import reference
from lab.course.exercise import Claim, answer, answer_with_bug, kernel


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@kernel(lines=16)
def rotate(attempt):
    """The gradient of rotated pairs, of one token and of several, with a tail."""
    for tokens, cols in [(1, 2), (5, 8), (37, 64)]:
        angles = 3 * draw(tokens, cols // 2)
        cos, sin = angles.cos(), angles.sin()
        dy, dx = draw(tokens, cols), attempt.empty(tokens, cols)
        given = [attempt.tensor(each) for each in (dy, cos, sin)]
        attempt(*given, dx, tokens, cols)
        wanted = turned_back(dy.double(), cos.double(), sin.double())
        length = torch.hypot(*dy.double().chunk(2, -1)).repeat(1, 2)  # which no rotation changes
        error = ((dx.cpu() - wanted).abs() / length).nan_to_num(nan=math.inf).max().item()
        yield Claim(
            error < 4 * torch.finfo(torch.float32).eps,
            f"{tokens} tokens of {cols} columns: off by {error:.1e} of a pair's length. By which"
            " angle does the gradient of a rotation rotate?",
        )
    angles = draw(40, 16)
    given = draw(40, 32), angles.cos(), angles.sin(), torch.empty(40, 32)
    report = lab.check(attempt.launch, *given, 40, 32)
    yield Claim(report.findings.empty, f"lab.check: {report.first}")


def turned_back(dy: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The gradient of x by autograd, where the rotated x has the gradient dy."""
    x = torch.zeros_like(dy, requires_grad=True)
    a, b = x.chunk(2, -1)
    y = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    return torch.autograd.grad(y, x, dy)[0]


@answer
def operations(given):
    """Of the products and of causal attention, forward and backward."""
    for sizes in [(16384, 175_112_192, 12, 1024, 1024), (64, 1000, 2, 32, 16)]:
        words, weights, layers, length, width = sizes
        wanted = 6 * words * weights + 7 * words * layers * length * width
        got = given(*sizes)
        yield Claim(
            got is not ... and math.isclose(got, wanted),
            f"{words} words, {weights} weights, {layers} layers, {length} words in a text, width"
            f" {width}: got {got}. How many products has a weight, and how many has attention,"
            " forward and backward, of half of all pairs of words?",
        )


@answer
def kept(given):
    """Numbers of a word that down(silu(gate) * up) keeps, of PyTorch's modules and of ours."""
    for width, hidden in [(1024, 2816), (64, 192)]:
        wanted = width + 4 * hidden, width + 3 * hidden
        got = given(width, hidden)
        yield Claim(
            isinstance(got, tuple) and got == wanted,
            f"width {width}, hidden {hidden}: got {got}. What is the input of each product, and"
            " what does the formula of each op between them read?",
        )


class _Largest(TorchDispatchMode):
    """Notes, while it is on, the numbers of the largest tensor that an op makes."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if _is(t)}
        for made in filter(_is, tree_leaves(result)):
            if made.untyped_storage().data_ptr() not in given:
                self.numbers = max(self.numbers, made.numel())
        return result


def _is(leaf: object) -> bool:
    return isinstance(leaf, Tensor)


@answer
def classes(given):
    """Losses of words, in chunks of classes, of small logits and of large ones."""
    cases = {
        "40 classes in chunks of 8": (1.0, 40, 8),
        "a last chunk that is smaller": (1.0, 43, 8),
        "one chunk": (1.0, 16, 16),
        "logits of thousands": (1000.0, 40, 8),
    }
    for case, (size, vocabulary, chunk) in cases.items():
        y, weight = size * draw(24, 6).double(), draw(vocabulary, 6).double()
        targets = torch.arange(24) * 7 % vocabulary
        wanted = functional.cross_entropy(y @ weight.T, targets, reduction="none")
        with _Largest() as largest:
            got = given(y, weight, targets, chunk)
        right = _is(got) and got.shape == wanted.shape and torch.allclose(got, wanted)
        yield Claim(
            right,
            f"{case}: the losses are not right. What does a sum of powers become when a larger"
            " logit comes, and in which chunk is the target?",
        )
        most = max(24 * chunk, y.numel())
        yield Claim(
            largest.numbers <= most,
            f"{case}: a tensor has {largest.numbers} numbers; wanted are {most} at most",
        )


@answer_with_bug
def groups(given):
    """Each head of k for the heads of q that share it, which are neighbours."""
    for heads, kv_heads in [(4, 1), (4, 4), (4, 2), (6, 3)]:
        q, k, v = draw(2, heads, 5, 8), draw(2, kv_heads, 5, 8), draw(2, kv_heads, 5, 8) + 1
        wanted = reference.attention(q, k, v)
        got = functional.scaled_dot_product_attention(q, given(k, heads), given(v, heads))
        yield Claim(
            got.shape == wanted.shape and torch.allclose(got, wanted, atol=1e-5),
            f"{heads} heads of q and {kv_heads} of k: attention is another one. Which heads of q"
            " share the first head of k?",
        )


@answer
def break_position(given):
    """The first integer that rounds to the same bfloat16 as its successor."""

    def same(position: int) -> bool:
        first, second = torch.tensor([position, position + 1]).bfloat16()
        return bool(first == second)

    yield Claim(isinstance(given, int) and given >= 0, "wanted is a position, an int")
    yield Claim(same(given), f"bfloat16 can tell {given} from {given + 1}")
    yield Claim(not any(map(same, range(given))), f"{given} is right, but not the first one")


@answer
def fit(given):
    """The fewest layers that have to be computed again."""
    cases = [(12, 500, 60, 6000), (12, 500, 60, 4000), (12, 500, 60, 1220), (12, 500, 60, 1000)]
    for layers, kept, inputs, free in [*cases, (1, 500, 60, 540), (2, 500, 60, 1000)]:
        wanted = next((n for n in range(layers + 1) if _fits(n, layers, kept, inputs, free)), None)
        got = given(layers, kept, inputs, free)
        yield Claim(
            got is not ... and got == wanted,
            f"{layers} layers that keep {kept} or {inputs} bytes, {free} free: got {got}. What is"
            " there when backward begins, and what comes to it with the first layer that is"
            " computed again?",
        )


def _fits(again: int, layers: int, kept: int, inputs: int, free: int) -> bool:
    at_once = kept if again else 0
    return (layers - again) * kept + again * inputs + at_once <= free


@answer
def floor(given):
    """The roofline of ops that follow each other."""
    cases = [[(600, 10)], [(60, 10)], [(600, 10), (60, 10), (0, 30)], [(300, 50), (900, 30)]]
    for ops in cases:
        each = [(max(a / 100, b / 5), b / 5 > a / 100) for a, b in ops]
        whole = sum(seconds for seconds, _ in each)
        share = sum(seconds for seconds, of_bytes in each if of_bytes) / whole
        got = given(ops, 100.0, 5.0)
        right = isinstance(got, tuple) and ... not in got
        yield Claim(
            right and all(map(math.isclose, got, (whole, share))),
            f"{ops} at 100 operations and 5 bytes a second: got {got}. Which of its two limits"
            " does each op meet last?",
        )
