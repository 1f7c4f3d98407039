"""Correct ops that no audit may accuse: PyTorch's own, and extensions as people write them."""

from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import jitload
import lab
from lab.auditor.example import Call, Example
from lab.auditor.report import FAIL, NOTE, REFUSED

DICE = torch.Generator().manual_seed(1)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=DICE)


X, IMAGE, INDEX = drawn(5, 33), drawn(2, 4, 5, 6), torch.randint(0, 9, (5, 7), generator=DICE)
HEADS = tuple(drawn(2, 3, 8, 16) for _ in range(3))
# What once misled the audit, with the rows that it did so in.
MISLEADING = {
    "sort": (lambda x: torch.sort(x, -1), (X,), ["layouts", "shapes"]),  # equal elements
    "topk": (lambda x: torch.topk(x, 3), (X,), ["layouts"]),
    "var": (lambda x: x.var(-1), (X,), ["zero strided", "expanded"]),  # 0 by cancellation
    "batch_norm": (  # PyTorch's own fake has other strides
        lambda x: F.batch_norm(x, None, None, training=True),
        (IMAGE,),
        ["fake tensors", "gradients"],
    ),
    "diff": (torch.diff, (X,), ["shapes", "empty"]),  # of one element nothing is left
    "attention": (  # does not compare the lengths of k and v, and has no second derivative
        F.scaled_dot_product_attention,
        HEADS,
        ["error", "shapes", "double backward", "torch.func"],
    ),
    "rfft": (  # other bits at another alignment
        lambda x: torch.fft.rfft(x).abs(),
        (drawn(5, 32),),
        ["threads", "copies", "inference mode", "same bits"],
    ),
    "cdist": (torch.cdist, (drawn(5, 6), drawn(7, 6)), ["double backward", "error"]),
}
PYTORCHS = {
    **{
        f.__name__: (f, (X,))
        for f in (torch.relu, F.gelu, F.silu, torch.exp, torch.tanh, torch.sign, torch.round)
    },
    "softmax": (lambda x: F.softmax(x, -1), (X,)),
    "log_softmax": (lambda x: F.log_softmax(x, -1), (X,)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), (X, X[0], X[1])),
    "rms_norm": (lambda x, w: F.rms_norm(x, x.shape[-1:], w), (X, X[0])),
    "group_norm": (lambda x: F.group_norm(x, 2), (IMAGE,)),
    "cumsum": (lambda x: torch.cumsum(x, -1), (X,)),
    "max": (lambda x: torch.max(x, -1), (X,)),
    "mean": (torch.mean, (X,)),
    "std": (lambda x: x.std(-1), (X,)),
    "gather": (lambda x, i: torch.gather(x, 1, i), (drawn(5, 9), INDEX)),
    "index_add": (
        lambda x, i, s: torch.index_add(x, 0, i, s),
        (drawn(9, 6), INDEX[0], drawn(7, 6)),
    ),
    "embedding": (F.embedding, (INDEX, drawn(9, 6))),
    "linear": (F.linear, (X, drawn(7, 33), drawn(7))),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1), (drawn(2, 3, 8, 9), drawn(4, 3, 3, 3))),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (IMAGE,)),
    "cross_entropy": (F.cross_entropy, (drawn(7, 9), INDEX[0])),
    "kl_div": (lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1)), (X, X.flip(0))),
    "leaky_relu": (F.leaky_relu, (X, 0.01)),
    "where": (torch.where, (X > 0, X, X.flip(0))),
    "softplus": (F.softplus, (X,)),
    "glu": (lambda x: F.glu(x, 0), (drawn(6, 33),)),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), (X,)),
    "cosine_similarity": (lambda x, y: F.cosine_similarity(x, y, -1), (X, X.flip(0))),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (IMAGE,)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), (IMAGE,)),
    "bmm": (torch.bmm, (drawn(2, 5, 7), drawn(2, 7, 3))),
    "cat": (lambda a, b: torch.cat((a, b), -1), (X, drawn(5, 7))),
    "transpose": (torch.t, (X,)),
    "one_hot": (lambda i: F.one_hot(i, 9), (INDEX,)),
    "histc": (lambda x: torch.histc(x, 10, -3.0, 3.0), (drawn(50),)),
}


def accusations(function, inputs, **options) -> list[str]:
    report = lab.audit(function, inputs, **{"reference": function, "isolated": False} | options)
    return [f"{it.name}: {it.message}" for it in report.rows if it.verdict in (FAIL, NOTE)]


@pytest.mark.parametrize("name", MISLEADING)
def test_what_misled_it(name):
    function, inputs, rows = MISLEADING[name]
    assert not accusations(function, inputs, only=rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", PYTORCHS)
def test_ops_of_pytorch(name):
    assert not accusations(*PYTORCHS[name])


class Recomputing(torch.autograd.Function):
    """Attention as fused kernels have it: backward recomputes the weights from rounded numbers."""

    @staticmethod
    def forward(ctx, q, k, v):
        scores = q @ k.mT
        p = scores.softmax(-1)
        y = p @ v
        ctx.save_for_backward(q, k, v, y, scores.logsumexp(-1, keepdim=True))
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        q, k, v, y, total = ctx.saved_tensors
        p = (q @ k.mT - total).exp()
        ds = p * (g @ v.mT - (g * y).sum(-1, keepdim=True))
        return ds @ k, ds.mT @ q, p.mT @ g


def test_a_gradient_that_only_rounding_is_left_of():
    """Where one weight is 1 and the others are 0, q's and k's gradients are 0 but for rounding."""
    inputs = drawn(6, 8), drawn(10, 8), drawn(10, 8)
    report = lab.audit(
        Recomputing.apply,
        inputs,
        reference=lambda q, k, v: (q @ k.mT).softmax(-1) @ v,
        only=["scales", "zero strided", "error"],
        isolated=False,
    )
    assert report.ok, str(report)


class Opacity(torch.autograd.Function):
    """1 minus a product, as renderers blend: the product comes back from the rounded result."""

    @staticmethod
    def forward(ctx, x):
        y = 1 - (1 - x.sigmoid()).prod(-1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g[..., None] * (1 - y)[..., None] * x.sigmoid()


def test_a_gradient_made_of_a_rounded_result():
    report = lab.audit(
        Opacity.apply,
        drawn(5, 60),
        reference=lambda x: 1 - (1 - x.sigmoid()).prod(-1),
        only=["shapes", "layouts", "expanded gradient", "gradients"],
        isolated=False,
    )
    assert report.ok, str(report)


def test_a_gradient_of_exp_of_a_rounded_result():
    """PyTorch's logsumexp saves its result, of which an ULP is much where numbers are large."""

    def reference(x: Tensor) -> Tensor:
        largest = x.detach().amax(-1, keepdim=True)
        return (x - largest).exp().sum(-1).log() + largest[..., 0]

    options = {"reference": reference, "only": ["scales", "gradients"], "isolated": False}
    assert not accusations(lambda x: torch.logsumexp(x, -1), X, **options)
    assert accusations(
        lambda x: torch.logsumexp(x.detach() + 0.99 * (x - x.detach()), -1), X, **options
    )


def test_a_gradient_that_the_reference_does_not_know():
    """exp(-x) overflows, and so the gradient is NaN; the result and the op's gradient are right."""
    options = {"reference": lambda x: x / (1 + (-x).exp()), "isolated": False}
    assert not accusations(F.silu, X, only=["scales", "gradients"], **options)
    half = accusations(
        lambda x: F.silu(x.detach() + 0.5 * (x - x.detach())), X, only=["scales"], **options
    )
    assert half
    options["reference"] = lambda x: x.square().sum(-1).sqrt()
    assert not accusations(lambda x: x.norm(dim=-1), 0 * X, only=["gradients"], **options)


def largest_of_parts(x: Tensor) -> Tensor:
    """amax() gives each of equal elements a share of the gradient."""
    x = F.pad(x, (1, 1, 1, 1), value=-torch.inf)
    return x.unfold(2, 3, 2).unfold(3, 3, 2).amax((-1, -2))


def test_a_gradient_of_one_of_equal_elements():
    options = {"reference": largest_of_parts, "isolated": False}
    options["only"] = ["error", "zero strided", "overlapping", "scales", "gradients"]
    assert not accusations(lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE, **options)
    half = partial(F.max_pool2d, kernel_size=3, stride=2, padding=1)
    assert accusations(lambda x: half(x.detach() + 0.5 * (x - x.detach())), IMAGE, **options)


def one_by_one(x: Tensor) -> Tensor:
    """The sums of columns as a thread adds them that has a column each."""
    total = torch.zeros_like(x[0])
    for row in x.detach().unbind():
        total += row
    return total


def test_a_long_sum_whose_terms_are_added_one_by_one():
    """65,537 of them are off by far more than PyTorch, which adds them in pairs."""
    options = {"only": ["beyond a grid"], "isolated": False}
    report = lab.audit(one_by_one, X + 3, reference=lambda x: x.sum(0), **options)
    assert report.ok, str(report)
    assert report.row("beyond a grid").verdict == "ok"
    report = lab.audit(
        lambda x: 1.01 * one_by_one(x), X + 3, reference=lambda x: x.sum(0), **options
    )
    assert not report.ok


def test_a_sum_within_its_bound_is_no_note():
    """Of 1,000 terms that are added one by one, PyTorch is some ten times as exact."""

    def op(x: Tensor, factor: float = 1.0) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (one_by_one(wide) * factor).to(x.dtype)

    options = {"reference": lambda x: x.sum(0), "only": ["error"], "isolated": False}
    report = lab.audit(op, drawn(1000, 8) + 3, **options)
    assert report.row("error").verdict == "ok", str(report)
    report = lab.audit(lambda x: op(x, 1 + 1e-4), drawn(1000, 8) + 3, **options)
    assert report.row("error").verdict == FAIL


def of_parts(x: Tensor, begins: Tensor) -> Tensor:
    """The sum of each part, as a kernel takes it that goes from one beginning to the next."""
    ends = x.cumsum(0, dtype=torch.float64)
    ends = torch.cat((torch.zeros_like(ends[:1]), ends))[begins.long()]
    return ends.diff(dim=0).to(x.dtype)


def test_integers_that_say_where_parts_begin():
    """They are drawn in order, from 0 to the size of what has parts, and no layout repeats one."""

    def reference(x: Tensor, begins: Tensor) -> Tensor:
        begins = begins.tolist()
        assert begins == sorted(begins)
        assert (begins[0], begins[-1]) == (0, len(x))
        return torch.stack([x[a:b].sum(0) for a, b in pairwise(begins)])

    begins = torch.tensor([0, 2, 2, 5], dtype=torch.int32)
    both = Call.of(lambda x, y, a, b: 0, (X, X, begins, begins), {})
    example = Example.of(both, lambda x, y, a, b: reference(x, a) + reference(y, b))
    x, y, a, b = example.draw({"n5": 9, "n4": 7}, check=True).leaves
    assert len(x) == len(y) == int(a[-1]) == int(b[-1]) == 9
    assert len(a) == len(b) == 7
    traps = ["shapes", "layouts", "empty", "error"]
    report = lab.audit(of_parts, (X, begins), reference=reference, only=traps, isolated=False)
    assert report.ok, str(report)
    assert report.row("shapes").verdict == "ok"


def test_integers_that_say_where_parts_end():
    """As torch._grouped_mm takes them: what falls is drawn nowhere."""
    ends = torch.tensor([2, 2, 5], dtype=torch.int32)

    def reference(x: Tensor, ends: Tensor) -> Tensor:
        ends = [0, *ends.tolist()]
        assert ends == sorted(ends)
        assert ends[-1] == len(x)
        return torch.stack([x[a:b].sum(0) for a, b in pairwise(ends)])

    def op(x: Tensor, ends: Tensor) -> Tensor:
        return of_parts(x, torch.cat((torch.zeros_like(ends[:1]), ends)))

    traps = ["shapes", "layouts", "empty", "error"]
    report = lab.audit(op, (X, ends), reference=reference, only=traps, isolated=False)
    assert report.ok, str(report)
    assert report.row("shapes").verdict == "ok"


def test_integers_that_are_lengths():
    """One of them is as large as a size: they stay at most that, not below another, larger one."""
    lengths, bias = torch.tensor([8, 2, 5]), drawn(11)

    def reference(x: Tensor, lengths: Tensor, bias: Tensor) -> Tensor:
        counts = torch.arange(x.shape[1]) < lengths[:, None]
        return (x * counts).sum(1) + bias.sum()

    def op(x: Tensor, lengths: Tensor, bias: Tensor) -> Tensor:
        y = reference(x, lengths, bias)
        return y.masked_fill(lengths > x.shape[1], torch.nan)

    inputs = drawn(3, 8), lengths, bias
    traps = ["error", "shapes", "scales", "nothing cached", "layouts"]
    report = lab.audit(op, inputs, reference=reference, only=traps, isolated=False)
    assert report.ok, str(report)
    example = Example.of(Call.of(op, inputs, {}), reference)
    most = max(int(example.draw({"n8": 6}, seed=n).leaves[1].max()) for n in range(20))
    assert most == 6
    shapes = {"x": "rows cols", "lengths": "rows, int64 <= cols", "bias": "units"}
    example = Example.of(Call.of(op, inputs, {}), reference, shapes)
    most = max(int(example.draw({"cols": 4}, seed=n).leaves[1].max()) for n in range(20))
    assert most == 4


def test_a_size_that_is_refused_is_no_layout():
    def op(x: Tensor) -> Tensor:
        if x.shape[-1] % 8:
            raise ValueError("wanted is a multiple of 8 columns")
        return x * x

    report = lab.audit(op, drawn(5, 32), reference=torch.square, only=["layouts"], isolated=False)
    assert report.row("transposed").verdict == "ok", str(report)
    assert report.row("misaligned").verdict == "ok", str(report)


def test_another_size_with_integers_that_fit():
    """Where parts end lies in memory, perhaps a GPU's: an op can take what is beyond as the end."""

    def reference(x: Tensor, ends: Tensor) -> Tensor:
        assert int(ends[-1]) == len(x)
        return torch.stack([it.sum(0) for it in x.tensor_split(ends[:-1])])

    def op(x: Tensor, ends: Tensor) -> Tensor:
        return reference(x, torch.cat((ends[:-1].clamp(max=len(x)), ends.new_tensor([len(x)]))))

    inputs, options = (X, torch.tensor([2, 2, 5])), {"only": ["wrong inputs"], "isolated": False}
    report = lab.audit(op, inputs, reference=reference, **options)
    assert report.row("wrong inputs").verdict == "ok", str(report)


def test_sizes_that_stay():
    """A reference may take more than the op: here a scale of several columns."""
    scale = drawn(5, 1)
    call = Call.of(torch.mul, (X, scale), {})
    shapes = {call.names[0]: "rows cols", call.names[1]: "rows 1, < 7"}
    example = Example.of(call, torch.mul, shapes)
    x, other = example.draw({"rows": 8, "cols": 2}, check=True).leaves
    assert (x.shape, other.shape) == ((8, 2), (8, 1))
    assert list(example.limits.values()) == [7]
    with pytest.raises(ValueError, match=r"has the shape \[5, 1\], not 'rows 2'"):
        Example.of(call, torch.mul, shapes | {call.names[1]: "rows 2"})


class OnlyFloats(torch.autograd.Function):
    """Takes float64, and its backward pass refuses that."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        if g.dtype == torch.float64:
            raise RuntimeError("expected scalar type Float but found Double")
        return 2 * g * ctx.saved_tensors[0]


def test_a_backward_pass_that_refuses_float64_is_refused():
    report = lab.audit(
        OnlyFloats.apply,
        X,
        reference=torch.square,
        only=["gradcheck", "gradients"],
        isolated=False,
    )
    assert report.ok, str(report)
    assert report.row("gradcheck").verdict == REFUSED


def test_a_gradient_beside_an_input_that_refuses_one():
    """nll_loss has none by its weights; it was said to have none, and no row looked at it."""
    target, weight = INDEX[0], drawn(9).abs()
    options = {"only": ["autograd"], "isolated": False}

    def reference(x: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        picked = x.gather(1, target[:, None])[:, 0]
        return -(picked * weight[target]).sum() / weight[target].sum()

    for of in (reference, F.nll_loss):
        report = lab.audit(F.nll_loss, (drawn(7, 9), target, weight), reference=of, **options)
        assert report.ok, str(report)
        assert report.row("gradient there").message == "not of weight, which refuses one"
        for name in ("gradients", "gradcheck", "strided gradient", "needs_input_grad"):
            assert report.row(name).verdict == "ok", str(report)

    def wrong(x: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        return F.nll_loss(x.detach() + 0.5 * (x - x.detach()), target, weight)

    report = lab.audit(wrong, (drawn(7, 9), target, weight), reference=reference, **options)
    assert report.row("gradients").verdict == report.row("gradcheck").verdict == FAIL


SECOND = torch.library.Library("audit_second", "FRAGMENT")
SECOND.define("times(Tensor x, Tensor y) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
SECOND.impl("times", lambda x, y: 2 * x.detach() * y.detach(), "CPU")


class OfAnOp(torch.autograd.Function):
    """Backward is an op for which nobody registered a formula: PyTorch warns, and has zeros."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return torch.ops.audit_second.times(g, ctx.saved_tensors[0])


@pytest.mark.filterwarnings("ignore")
def test_a_second_derivative_of_which_pytorch_warns_is_a_note():
    options = {"reference": torch.square, "only": ["double backward"], "isolated": False}
    report = lab.audit(OfAnOp.apply, X, **options)
    assert report.row("double backward").verdict == NOTE, str(report)
    assert "leads to no second derivative" in report.row("double backward").message


@pytest.mark.parametrize(("file", "verdict"), [("my/op.cpp", REFUSED), ("aten/src/A.cpp", FAIL)])
def test_an_assertion_of_the_binding_is_a_refusal(file, verdict):
    """AT_ASSERT(x.is_contiguous()) speaks of an internal error; one of PyTorch's own is one."""

    def asserting(x: Tensor) -> Tensor:
        if not x.is_contiguous():
            raise RuntimeError(f'x.is_contiguous() INTERNAL ASSERT FAILED at "{file}":13, please')
        return x * x

    report = lab.audit(asserting, X, reference=torch.square, only=["transposed"], isolated=False)
    assert report.row("transposed").verdict == verdict, str(report)


# ---- sources

ONE_CALL_AT_A_TIME = """\
namespace {
class Check {
  public:
    explicit Check(cudaStream_t stream) : stream_(stream) {
        static thread_local int* shared = nullptr;
        if (shared == nullptr) cudaHostAlloc(&shared, sizeof(int), cudaHostAllocDefault);
        bad_ = shared;
        cudaEventRecord(done_, stream);
    }
    ~Check() { cudaEventSynchronize(done_); }
  private:
    int* bad_;
    cudaEvent_t done_;
};
}
"""


def test_memory_of_a_thread_that_is_waited_for(tmp_path):
    """No two calls use it; without thread_local, or without waiting, two do."""
    path = tmp_path / "mine.cu"
    options = {"only": ["nothing kept"], "sources": [path]}
    path.write_text(ONE_CALL_AT_A_TIME)
    assert not accusations(torch.relu, X, **options)
    path.write_text(ONE_CALL_AT_A_TIME + "void another() { cudaStreamSynchronize(0); }\n")
    assert not accusations(torch.relu, X, **options)
    for changed in ("static thread_local", "cudaEventSynchronize(done_);"):
        text = ONE_CALL_AT_A_TIME.replace(changed, changed.partition(" ")[0] * (" " in changed))
        path.write_text(text + "void another() { cudaStreamSynchronize(0); }\n")
        assert accusations(torch.relu, X, **options), text


MEMBER = """\
struct Launch {
    dim3 grid, block;
    template <class... P, class... A>
    void start(void (*kernel)(P...), cudaStream_t stream, A... given) const {
        if (grid.x > 1) {
            kernel<<<grid, block, 0, stream>>>(given...);
        }
    }
};
[[noreturn]] void report(const int* bad) {
    int found = 0;
    cudaMemcpy(&found, bad, sizeof(int), cudaMemcpyDefault);
    throw std::invalid_argument(std::to_string(found));
}
cudaError_t twice(const float* x, float* y, int64_t n, cudaStream_t stream) {
    Launch{dim3((n + 255) / 256), dim3(256)}.start(twice_kernel, stream, x, y, n);
    return cudaGetLastError();
}
"""


def test_a_launch_in_a_member_function_and_a_wait_before_an_error(tmp_path):
    """Who calls the function asks for the launch's error; what throws may wait."""
    path = tmp_path / "mine.cu"
    path.write_text(MEMBER)
    assert not accusations(torch.relu, X, only=["source"], sources=[path])
    path.write_text(MEMBER.replace("return cudaGetLastError()", "return cudaSuccess"))
    assert any(
        "checked" in it for it in accusations(torch.relu, X, only=["source"], sources=[path])
    )


def test_floats_of_one_byte_are_judged():
    """PyTorch compares none, and no row may be missing for that."""

    def stored(x: Tensor) -> Tensor:
        return (2 * x).to(torch.float8_e4m3fn)

    def wrong(x: Tensor) -> Tensor:
        return (2.5 * x).to(torch.float8_e4m3fn)

    traps = ["error", "shapes", "transposed", "inference mode", "autocast", "vmap"]
    traps += ["special values"]
    report = lab.audit(stored, (X,), reference=stored, isolated=False, only=traps)
    assert {it.verdict for it in report.rows} == {"ok"}, str(report)
    report = lab.audit(wrong, (X,), reference=stored, isolated=False, only=traps)
    assert report.row("error").verdict == FAIL


def test_opcheck_of_an_op_of_floats_of_one_byte():
    """PyTorch's look at the schema multiplies them, which it cannot."""
    library = torch.library.Library("audit_bytes", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
    library.impl("twice", lambda x: x.float() * 2, "CompositeExplicitAutograd")
    library.impl("twice", lambda x: torch.empty_like(x, dtype=torch.float32), "Meta")
    x = X.to(torch.float8_e4m3fn)
    traps = {"only": ["opcheck"], "isolated": False}
    op = torch.ops.audit_bytes.twice.default
    report = lab.audit(op, x, reference=lambda x: x.float() * 2, **traps)
    assert report.row("opcheck").verdict == "ok", str(report)


def test_floats_of_four_bits_are_judged():
    def stored(x: Tensor, by: int = 1) -> Tensor:
        return (by * x).clamp(0, 7).to(torch.uint8).view(torch.float4_e2m1fn_x2)

    traps = ["error", "shapes", "transposed", "inference mode", "autocast", "vmap"]
    report = lab.audit(stored, (X,), reference=stored, isolated=False, only=traps)
    assert {it.verdict for it in report.rows} == {"ok"}, str(report)
    report = lab.audit(lambda x: stored(x, 2), (X,), reference=stored, isolated=False, only=traps)
    assert report.row("error").verdict == FAIL


def test_a_sum_that_overflows_where_a_reference_in_float64_does_not():
    """A product with scales at its end, as kernels have it: worth knowing, and no mistake."""
    weights, scale = 100 * drawn(7, 33), torch.tensor(1e-3)

    def scaled(x: Tensor, w: Tensor) -> Tensor:
        return (x.float() @ w.float().T * scale).to(x.dtype)

    def reference(x: Tensor, w: Tensor) -> Tensor:
        return x.double() @ (w.double() * scale).T

    options = {"only": ["special values"], "isolated": False}
    report = lab.audit(scaled, (X.bfloat16(), weights.bfloat16()), reference=reference, **options)
    assert report.row("special values").verdict == NOTE, str(report)
    assert "does not overflow on the way" in report.row("special values").message
    report = lab.audit(
        lambda x, w: scaled(x, w).nan_to_num(), (X, weights), reference=reference, **options
    )
    assert report.row("special values").verdict == FAIL


def test_special_values_that_a_mask_hides():
    """PyTorch multiplies them by 0 and has NaN; a kernel may leave them out. Others count."""
    mask = (torch.arange(33) >= 20).float()[:, None]
    options = {"only": ["special values"], "isolated": False, "reference": lambda x: x @ mask}
    assert lab.audit(lambda x: x[:, 20:].sum(1, keepdim=True), X, **options).ok
    whole = options | {"reference": lambda x: x @ torch.ones(33, 1)}
    assert not lab.audit(lambda x: x[:, 20:].sum(1, keepdim=True), X, **whole).ok
    assert not lab.audit(lambda x: x.nan_to_num().sum(1, keepdim=True), X, **whole).ok


def test_a_scale_of_infinity_at_the_end_of_a_sum():
    """PyTorch's infinities of both signs are NaN; the sum times infinity is not."""
    options = {"only": ["special values"], "isolated": False}
    options["reference"] = lambda x, s: (x * s).sum(1)
    inputs = X, torch.tensor(0.7)
    assert lab.audit(lambda x, s: x.sum(1) * s, inputs, **options).ok
    scales = options | {"reference": lambda x, s: (x * s[:, None]).sum(1)}  # one of them NaN
    assert lab.audit(lambda x, s: x.sum(1) * s, (X, drawn(5)), **scales).ok
    assert not lab.audit(lambda x, s: x.sum(1) * s.nan_to_num(1), (X, drawn(5)), **scales).ok
    assert not lab.audit(lambda x, s: x.nan_to_num().sum(1) * s, inputs, **options).ok


def test_a_sum_whose_terms_are_multiplied_by_infinity():
    """A norm may multiply the weight by the deviation first. It has to be right below infinity, and
    a product's NaN stands for none."""
    options = {"only": ["special values"], "isolated": False}
    inputs = IMAGE, drawn(4), drawn(4)

    def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        y = x.unflatten(1, (2, -1)).flatten(2)
        y = (y - y.mean(2, keepdim=True)) / (y.var(2, False, keepdim=True) + 1e-5).sqrt()
        return (
            y.unflatten(2, (-1, *x.shape[2:])).flatten(1, 2) * w[:, None, None] + b[:, None, None]
        )

    def group_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.group_norm(x, 2, w, b)

    def large_lost(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return group_norm(x, w * (w < torch.finfo(w.dtype).max / 2**20), b)

    report = lab.audit(group_norm, inputs, reference=norm, **options)
    assert report.row("special values").verdict == NOTE, str(report)
    assert "infinities of both signs" in report.row("special values").message
    report = lab.audit(large_lost, inputs, reference=norm, **options)
    assert report.row("special values").verdict == FAIL
    product = partial(lab.audit, inputs=(X, X[0]), reference=torch.mul, **options)
    assert product(torch.mul).row("special values").verdict == "ok"
    assert product(lambda x, w: x * w * (w.abs() < 1e4)).row("special values").verdict == FAIL


def test_a_loss_of_an_infinite_logit():
    """One formula subtracts the largest logit, or multiplies by 1 - target, and another does not:
    NaN stands for infinity. Both have to be right for large logits."""
    options = {"only": ["special values"], "isolated": False}
    inputs, target = (drawn(7, 9), INDEX[0] % 9), drawn(7, 9).sigmoid()

    def entropy(x: Tensor, target: Tensor) -> Tensor:
        return (x.logsumexp(-1) - x.gather(1, target[:, None])[:, 0]).mean()

    def of_two_products(x: Tensor, t: Tensor) -> Tensor:
        return (t * F.softplus(-x) + (1 - t) * F.softplus(x)).mean()

    bce = F.binary_cross_entropy_with_logits
    for op, given, reference in (
        (F.cross_entropy, inputs, entropy),
        (bce, (inputs[0], target), of_two_products),
        (of_two_products, (inputs[0], target), bce),
    ):
        report = lab.audit(op, given, reference=reference, **options)
        assert report.row("special values").verdict == NOTE, str(report)
        assert "infinities of both signs" in report.row("special values").message

    def overflowing(x: Tensor, t: Tensor) -> Tensor:
        return (x.exp().log1p() - x * t).mean()

    report = lab.audit(overflowing, (inputs[0], target), reference=of_two_products, **options)
    assert report.row("special values").verdict == FAIL


def one_after_another(x: Tensor, by: Tensor) -> Tensor:
    total, found = torch.zeros_like(x[:, 0]), []
    for column in x.unbind(1):
        total = column + by * total
        found.append(total)
    return torch.stack(found, 1)


def test_a_power_that_overflows():
    """A scan adds infinities of both signs where a recurrence carries the first one on."""

    def scanned(x: Tensor, by: Tensor, most: float = torch.inf) -> Tensor:
        rows = torch.arange(x.shape[1])
        power = (rows[:, None] - rows).clamp(min=0)
        return (x[:, None] * (by**power).clamp(max=most).tril()).sum(-1)

    options = {"only": ["special values"], "isolated": False, "reference": one_after_another}
    inputs = drawn(3, 40), torch.tensor([0.9])
    assert lab.audit(scanned, inputs, **options).row("special values").verdict == NOTE
    report = lab.audit(lambda x, by: scanned(x, by, 1.0), inputs, **options)
    assert report.row("special values").verdict == FAIL, str(report)


def test_infinities_among_weights():
    """A convolution may skip its zeros."""
    options = {"only": ["special values"], "isolated": False}

    def convolved(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        rows = F.pad(x, (1, 1)).unfold(2, w.shape[2], 2)
        return torch.einsum("nclk,ock->nol", rows, w) + b[:, None]

    def skipping(x: Tensor, w: Tensor, b: Tensor, factor: float = 1.0) -> Tensor:
        return F.conv1d(x, w * factor, b, stride=2, padding=1)

    inputs = drawn(2, 3, 9), drawn(4, 3, 3), drawn(4)
    report = lab.audit(skipping, inputs, reference=convolved, **options)
    assert report.row("special values").verdict == "ok", str(report)
    report = lab.audit(
        lambda x, w, b: skipping(x, w.nan_to_num(), b), inputs, reference=convolved, **options
    )
    assert report.row("special values").verdict == FAIL


def test_floats_of_four_bits_are_taken():
    """PyTorch converts none: they are drawn as bytes."""

    def unpacked(q: Tensor, s: Tensor) -> Tensor:
        codes = q.view(torch.uint8)
        return torch.cat((codes & 15, codes >> 4), -1) * s

    q = torch.randint(256, (6, 8), dtype=torch.uint8, generator=DICE).view(torch.float4_e2m1fn_x2)
    options = {"only": ["error", "shapes", "layouts", "threads"], "isolated": False}
    inputs = q, torch.tensor(0.5)
    report = lab.audit(lambda q, s: unpacked(q, s), inputs, reference=unpacked, **options)
    assert report.ok, str(report)
    assert {report.row(it).verdict for it in ("error", "shapes", "transposed")} == {"ok"}
    report = lab.audit(lambda q, s: unpacked(q, s) + 1, inputs, reference=unpacked, **options)
    assert report.row("error").verdict == FAIL


@pytest.mark.parametrize(
    ("declared", "told"),
    [("uint32_t i", "2^32 threads"), ("int i", "2^31 threads"), ("unsigned i", "2^32 threads")],
)
def test_an_unsigned_index_holds_twice_as_many(tmp_path, declared, told):
    path = tmp_path / "mine.cu"
    path.write_text(
        f"__global__ void k() {{ {declared} = threadIdx.x + blockIdx.x * blockDim.x; }}"
    )
    options = {"only": ["2^31 elements"], "sources": [path]}
    assert told in accusations(torch.relu, X, **options)[0]


@pytest.mark.parametrize(
    ("index", "overflows"),
    [
        ("int i = threadIdx.x + blockIdx.y * blockDim.x", False),
        ("int i = blockIdx.z * blockDim.z + threadIdx.z", False),
        ("int64_t i = blockIdx.y * blockDim.y + threadIdx.y", False),
        ("int i = threadIdx.x + blockIdx.x * blockDim.x", True),
        ("int i = blockIdx.y * cols + threadIdx.x", True),
        ("int i = blockIdx.y * blockDim.y * cols + threadIdx.x", True),
        ("int64_t i = blockIdx.x * blockDim.x + threadIdx.x", True),
    ],
)
def test_a_grid_has_few_blocks_in_y_and_z(tmp_path, index, overflows):
    """65,535 of at most 1,024 threads."""
    path = tmp_path / "mine.cu"
    path.write_text(f"__global__ void k(int cols) {{ {index}; }}")
    assert bool(accusations(torch.relu, X, only=["2^31 elements"], sources=[path])) is overflows


def test_cuda_memset_has_no_stream_and_does_not_wait(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text("void zero(void* p, size_t n) { cudaMemset(p, 0, n); }")
    options = {"only": ["stream", "no waiting"], "isolated": False, "sources": [path]}
    report = lab.audit(torch.relu, X, reference=torch.relu, **options)
    assert report.row("stream").verdict == FAIL, str(report)
    assert "cudaMemset without a stream" in report.row("stream").message
    assert report.row("no waiting").verdict == "ok"


HEADER = """\
template <class T>
void launch_twice(const T* x, T* y, int64_t n, cudaStream_t stream, Counters counters = {}) {
    twice_kernel<T><<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
"""


def test_a_launcher_of_a_header_that_the_op_leaves_out(tmp_path):
    """It belongs to another op; called, it has to be asked for its error."""
    header, main = tmp_path / "mine.cuh", tmp_path / "mine.cu"
    header.write_text(HEADER)
    main.write_text("void other() {}\n")
    options = {"only": ["checked launch"], "sources": [header, main]}
    assert not accusations(torch.relu, X, **options)
    called = "void twice(const float* x, float* y) { launch_twice(x, y, 3, 0); }\n"
    main.write_text(called)
    assert any("checked" in it for it in accusations(torch.relu, X, **options))
    main.write_text(called.replace("; }", "; cudaGetLastError(); }"))
    assert not accusations(torch.relu, X, **options)


ADDITIONS = """\
inline __device__ void add(int32_t* to, int32_t value) { atomicAdd(to, value); }
inline __device__ void add(float* to, float value) { atomicAdd(to, value); }
struct Reducer {
    static __device__ void into(float* to, float value) { add(to, value); }
};
"""


def test_an_addition_that_is_of_integers_or_that_the_op_leaves_out(tmp_path):
    header, main = tmp_path / "mine.cuh", tmp_path / "mine.cu"
    header.write_text(ADDITIONS)
    options = {"only": ["order of sums"], "sources": [header, main]}
    main.write_text("void other() {}\n")
    assert not accusations(torch.relu, X, **options)
    main.write_text("__global__ void k(float* y) { Reducer::into(y, 1); }\n")
    (told,) = accusations(torch.relu, X, **options)
    assert "atomicAdd" in told
    header.write_text(ADDITIONS.replace("(float* to, float value) { atomicAdd", "() { none"))
    assert not accusations(torch.relu, X, **options)


RIGHT = """\
#define ON_DEVICE_OF(x) \\
    const c10::cuda::CUDAGuard guard(x.device())
struct Scope {
    explicit Scope(const at::Tensor& x) : guard(x.device()) {}
    c10::cuda::CUDAGuard guard;
};
const char* kName = "twice";
__device__ const float kTable[2] = {1, 2};
__global__ void k(const float* x, float* y, int heads, int64_t cols) {
    const int batch = blockIdx.x;
    y[(batch * heads + threadIdx.y) * cols] = x[int64_t(batch) * heads] * batch * heads;
}
at::Tensor first(const at::Tensor& x) {
    ON_DEVICE_OF(x);
    cudaStream_t side, stream = 0;
    stream = at::cuda::getCurrentCUDAStream();
    cudaStreamCreate(&side);
    cudaStreamWaitEvent(side, event);
    k<<<1, 1, 0, stream>>>(x, x, 1, 1);
    k<<<1, 1, 0, side>>>(x, x, 1, 1);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return x;
}
at::Tensor second(const at::Tensor& x) {
    Scope scope(x);
    cudaLaunchConfig_t config{};
    config.stream = at::cuda::getCurrentCUDAStream();
    C10_CUDA_CHECK(cudaLaunchKernelEx(&config, k, x, x, 1, 1));
    k<<<1, 1, 0, config.stream>>>(x, x, 1, 1);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return x;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("first", &first); m.def("second", &second); }
"""


def test_guards_streams_and_products_that_only_look_like_traps(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text(RIGHT)
    assert not accusations(torch.relu, X, only=["source"], sources=[path])


def test_floats_of_one_byte_are_drawn_as_numbers():
    """Beyond their largest one there is only NaN, which would judge nothing."""
    x = (drawn(6, 8) * 200).clamp(-448, 448).to(torch.float8_e4m3fn)
    example = Example.of(Call.of(torch.clone, (x,), {}), torch.clone)
    for seed in range(9):
        (got,) = example.draw(seed=seed, scale=9.0).leaves
        assert not got.float().isnan().any()
    traps = ["subnormal", "strided", "zero strided", "autocast", "vmap"]
    scale = torch.tensor(0.5)
    options = {"only": traps, "isolated": False, "reference": lambda q, s: q.double() * s}
    report = lab.audit(lambda q, s: q.float() * s, (x, scale), **options)
    assert {report.row(it).verdict for it in traps} == {"ok"}, str(report)


SIZES = torch.arange(1.0, 9.0)
SIZED = """\
__global__ void sized(const float* x, const float* by, float* y, int64_t n) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * by[i % 8];
}
extern "C" cudaError_t launch(const float* x, const float* by, float* y, int64_t n,
                              cudaStream_t stream) {
    if (n) sized<<<(n + 255) / 256, 256, 0, stream>>>(x, by, y, n);
    return cudaGetLastError();
}
"""


def of_sizes(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    KERNELS["sized"].launch(x.contiguous(), SIZES, y, x.numel())
    return y


KERNELS: dict[str, jitload.Kernel] = {}


class OfSizes(torch.autograd.Function):
    """A tensor that stands beside the op is used in both passes."""

    @staticmethod
    def forward(ctx, x):
        return of_sizes(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return of_sizes(g)


def test_a_tensor_beside_the_op_is_no_wild_pointer(tmp_path):
    path = tmp_path / "sized.cu"
    path.write_text(SIZED)
    KERNELS["sized"] = jitload.load(path, target="cpu")
    options = {"only": ["bounds"], "isolated": False}

    def reference(x: Tensor) -> Tensor:
        assert x.shape[-1] == 8
        return x * SIZES.to(x)

    report = lab.audit(OfSizes.apply, X[:3, :8].clone(), reference=reference, **options)
    assert report.row("bounds").verdict == "ok", str(report)
