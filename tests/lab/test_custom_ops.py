"""`@lab.op`: a Python function that calls kernels, as an op with a gradient."""

import re
import textwrap
import warnings

import pytest
import torch
from jit_cases import load, write
from torch import Tensor
from torch.library import opcheck

import lab
from lab.custom_ops import op

pytestmark = pytest.mark.usefixtures("in_scratch")

SOURCE = """
__device__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }
__global__ void forward(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = log1pf(expf(x[i]));
}
__global__ void backward(const float* grad, const float* x, float* dx, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) dx[i] = grad[i] * sigmoid(x[i]);
}
__global__ void rows(float* x, const float* w, const float* b, float* y, float* most, int cols,
                     float scale, bool clip) {
    float best = -INFINITY;
    for (int j = 0, i = threadIdx.x * cols; j < cols; j++, i++) {
        float v = x[i] * w[j] * scale + b[j];
        y[i] = clip && v < 0 ? 0 : v;
        best = fmaxf(best, y[i]);
    }
    most[threadIdx.x] = best;
}
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
"""


@pytest.fixture
def mine():
    return load(write("mine.cu", SOURCE))


@pytest.fixture
def softplus(mine):
    """The op that the module's docstring shows."""
    (example,) = re.findall(r"(?ms)^    def softplus_grad.*?\n\n(?=\S)", op.__doc__)
    names = {"lab": lab, "mine": mine, "torch": torch, "Tensor": Tensor}
    exec(textwrap.dedent(example), names)
    return names["softplus"]


@pytest.fixture
def scale(mine):
    def scale_grad(grad, grad_most, x, w, b, factor, clip, out_0, needs_input_grad):
        grad = torch.where(out_0 > 0, grad, 0) if clip else grad
        dw = (grad * x * factor).sum(0) if needs_input_grad[1] else None
        return grad * w * factor, dw, None if b is None else grad.sum(0)

    @lab.op(backward=scale_grad, autocast="promote")
    def scale(
        x: Tensor, w: Tensor, b: Tensor | None = None, factor: float = 1.0, clip: bool = False
    ) -> tuple[Tensor, Tensor]:
        y, most = torch.empty_like(x), x.new_empty(x.shape[0])
        b = torch.zeros_like(w) if b is None else b
        mine.rows[1, x.shape[0]](x, w, b, y, most, x.shape[1], factor, clip)
        return y, most

    return scale


def scale_in_pytorch(x, w, b=None, factor=1.0, clip=False):
    y = x * w * factor + (0 if b is None else b)
    return y.relu() if clip else y


def compiled(function, **options):
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


def gradients(y, *leaves):
    return torch.autograd.grad((y * torch.linspace(-1, 1, y.shape[-1])).sum(), leaves)


@pytest.mark.parametrize("way", [lambda f: f, compiled, lambda f: compiled(f, dynamic=True)])
def test_an_op_has_its_gradient(softplus, way):
    for shape in ((5, 6), (7,)):
        x = torch.randn(shape, requires_grad=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*autograd does not record")
            y = way(lambda x: x + softplus(x))(x)
        wanted = x + torch.nn.functional.softplus(x)
        torch.testing.assert_close(y, wanted)
        torch.testing.assert_close(gradients(y, x), gradients(wanted, x))
        torch.testing.assert_close(  # by an expanded gradient
            torch.autograd.grad(softplus(x).sum(), x)[0], torch.sigmoid(x)
        )


def test_opcheck_finds_nothing(softplus, scale):
    x = torch.randn(3, 4)
    for sample in (x, x.clone().requires_grad_(), x.t(), x[:, ::2]):
        opcheck(softplus.op, (sample,))
    w = torch.randn(4, requires_grad=True)
    for arguments in ((x, w), (x.t().contiguous().t(), w, w.detach() * 2, 2.0, True)):
        opcheck(scale.op, arguments)


@pytest.mark.parametrize("way", [lambda f: f, compiled])
@pytest.mark.parametrize(
    ("b", "options", "wanted"),
    [
        (True, {}, "xwb"),
        (True, {"factor": 2.0, "clip": True}, "xb"),
        (False, {"factor": -3.0}, "w"),
        (False, {}, "x"),
    ],
)
def test_several_arguments_results_and_gradients(scale, way, b, options, wanted):
    tensors = {"x": torch.randn(5, 3), "w": torch.randn(3), "b": torch.randn(3) if b else None}
    leaves = [tensors[name].requires_grad_() for name in wanted]
    y, most = way(lambda *args: scale(*args, **options))(*tensors.values())
    expected = scale_in_pytorch(*tensors.values(), **options)
    torch.testing.assert_close((y, most), (expected, expected.amax(1)))
    torch.testing.assert_close(gradients(y, *leaves), gradients(expected, *leaves))


def test_autocast_casts_as_asked(scale):
    x, w = torch.randn(5, 3), torch.randn(3).bfloat16()
    with pytest.raises(TypeError, match=r"rows: w is torch.bfloat16"):
        scale(x, w)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(scale(x, w)[0], x * w)


def test_it_follows_edits_of_the_kernel_and_of_its_own_cell(mine, softplus):
    x = torch.randn(8, requires_grad=True)
    f = compiled(lambda x: softplus(x) + 0)
    before = f(x)
    source = mine.sources[0]
    text = source.read_text()
    source.write_text(
        text.replace("log1pf(", "2 * log1pf(").replace("grad[i] * s", "2 * grad[i] * s")
    )
    mine.reload()
    torch.testing.assert_close(f(x), 2 * before)
    torch.testing.assert_close(torch.autograd.grad(f(x).sum(), x)[0], 2 * torch.sigmoid(x))
    again = lab.op(softplus.function, backward=lambda grad, x: grad * 7)
    assert (again.__name__, again.op) != (softplus.__name__, softplus.op)
    assert torch.autograd.grad(again(x).sum(), x)[0].tolist() == [7] * 8


def test_transforms_and_second_derivatives(softplus):
    x = torch.randn(6, requires_grad=True)

    def second(f):
        (first,) = torch.autograd.grad(f(x).pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), x)[0]

    dx = torch.func.grad(lambda x: softplus(x).sum())(x.detach())
    torch.testing.assert_close(dx, torch.sigmoid(x.detach()))
    with pytest.raises(RuntimeError, match=r"no second derivative: softplus_grad calls a kernel"):
        second(softplus)
    in_pytorch = lab.op(softplus.function, backward=lambda grad, x: grad * torch.sigmoid(x))
    torch.testing.assert_close(second(in_pytorch), second(torch.nn.functional.softplus))


def test_results_that_are_not_what_was_promised_are_told():
    def positive(x: Tensor) -> Tensor:
        return x[x > 0]

    shown = lab.op(positive, out_like="x")
    shown(torch.ones(3))
    with pytest.raises(
        RuntimeError, match=r"positive returned .*\(2,\), and out_like says .*\(3,\)"
    ):
        shown(torch.tensor([1.0, -1.0, 1.0]))

    def pair(x: Tensor) -> Tensor:
        return x * 1, x * 2

    with pytest.raises(TypeError, match="pair returned Tensor, Tensor; its annotation says Tensor"):
        lab.op(pair)(torch.ones(3))


def test_shapes_come_from_calls_or_from_out_like(mine):
    def halves(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
        return x[:, :n] * 2, x.sum(1, keepdim=True).double()

    learned, x = lab.op(halves), torch.randn(3, 8)
    for n in (2, 5):  # compiled before it is called
        torch.testing.assert_close(compiled(learned)(x, n), halves(x, n))

    def half(x: Tensor) -> Tensor:
        return x[: len(x) // 2] * 2

    with pytest.raises(Exception, match=r"say what its results are like, as in @lab.op\(out_like="):
        compiled(lab.op(half))(torch.ones(8))
    said = lab.op(half, out_like=lambda x: x.new_empty(len(x) // 2))
    assert compiled(said)(torch.ones(8)).tolist() == [2] * 4
    with pytest.raises(RuntimeError, match=r"half returned .*\(4,\), and out_like says .*\(8,\)"):
        lab.op(half, out_like="x")(torch.ones(8))


def test_what_it_returns_is_nobody_elses(mine):
    same = lab.op(backward=lambda grad: grad)(identity)
    x = torch.ones(3, requires_grad=True)
    y = same(x)
    y.detach().zero_()
    assert x.tolist() == [1, 1, 1]
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [1, 1, 1]

    def doubled(x: Tensor) -> None:
        mine.twice[1, x.numel()](x)

    x = torch.ones(3)
    with pytest.raises(RuntimeError, match=r'doubled has written to x: .*mutates=\("x",\)'):
        lab.op(doubled)(x)
    in_place = lab.op(doubled, mutates="x")
    x = torch.ones(3)
    in_place(x)
    assert x.tolist() == [2, 2, 2]
    assert x._version
    opcheck(in_place.op, (torch.ones(3),))


def identity(x: Tensor) -> Tensor:
    return x


def untyped(x):
    return x


def untold(x: Tensor):
    return x


def odd(x: Tensor, n: complex) -> Tensor:
    return x


def tensorless(n: int) -> Tensor:
    return torch.empty(n)


def many(*x: Tensor) -> Tensor:
    return x[0]


@pytest.mark.parametrize(
    ("function", "options", "kind", "message"),
    [
        (untyped, {}, TypeError, "untyped: say the type of x, as in x: Tensor"),
        (untold, {}, TypeError, r"untold: say what it returns, as in def untold\(...\) -> Tensor"),
        (odd, {}, TypeError, r"odd: Parameter n has unsupported type .*complex.*\(lab.op takes"),
        (tensorless, {}, TypeError, "tensorless takes no tensor"),
        (many, {}, TypeError, r"many: \*x: .* an op takes no \*"),
        (identity, {"backward": "dx"}, TypeError, "backward is 'dx'; wanted is a function"),
        (identity, {"backward": lambda g, z: g}, TypeError, "takes z; wanted is .*any of: x, out"),
        (identity, {"backward": lambda: 0}, TypeError, r"takes too little; wanted is .*\(grad,"),
        (identity, {"autocast": "fast"}, ValueError, "autocast is 'fast'; wanted is 'promote' or"),
        (
            identity,
            {"mutates": "x", "backward": identity},
            ValueError,
            "writes to x: it can have no",
        ),
        (identity, {"mutates": "z"}, ValueError, "identity has no argument 'z'"),
        (identity, {"out_like": "z"}, ValueError, "out_like names 'z'; there are x"),
        (lambda g, x: g, {}, TypeError, r"as in @lab.op\(backward=softplus_grad\)"),
    ],
)
def test_what_is_missing_is_said_when_the_op_is_made(function, options, kind, message):
    with pytest.raises(kind, match=message):
        lab.op(function, **options)


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (None, r"identity has no gradient: give it one, as in @lab.op\(backward=identity_grad\)"),
        (lambda grad: (grad, grad), "returned 2 gradients; wanted is one, or None, for each .*: x"),
        (lambda grad: grad[:1], r"a gradient of shape \(1,\) for x, whose shape is \(3,\)"),
        (lambda grad: 3, "returned a int for x; wanted is a tensor or None"),
    ],
)
def test_a_backward_that_does_not_fit_is_told(backward, message):
    y = lab.op(identity, backward=backward)(torch.ones(3, requires_grad=True))
    with pytest.raises((RuntimeError, TypeError), match=message):
        y.sum().backward()
