"""The truth: one pure-PyTorch function per op, with the shapes of its inputs beside it.

In float64 a function here is the truth, from which a kernel's error is measured; in the kernel's
own type it gives PyTorch's error to compare with. Tests and tables find the ops in `OPS`.

To add an op, write its function here under `@op(argument="shape in letters", ...)`:

    x="rows cols"                  floating-point numbers [rows, cols] of the requested type
    target="rows, int64 < cols"    integers [rows], each in [0, cols)
    {"residual": None}             (first) other arguments to test with; one may replace a tensor
    sizes={"units": 24}            other letters, as in weight="units cols", and their test sizes
    weights={"w": "cols"}          small numbers about 0, like a layer's weights, for sums over cols
    x="rows 8cols"                 8 * cols columns

An op returns one tensor or a tuple of them. One that draws random numbers takes a `seed`; with None
PyTorch draws them. Benchmarks time it without a seed, tests compare results with one.
"""

import inspect
import math
import re
from collections.abc import Callable, Container
from dataclasses import dataclass, field

import torch
from torch import Tensor

OPS: dict[str, "Op"] = {}

_ARGUMENT = re.compile(r"(|\d*[a-z]+(?: \d*[a-z]+)*)(?:, int64 < ([a-z]+))?")
_DIGITS = "0123456789"


def size_of(letter: str, sizes: dict[str, int]) -> int:
    """The size of a shape's letter, such as "8cols": that of its name, times the number before."""
    name = letter.lstrip(_DIGITS)
    return int(letter.removesuffix(name) or 1) * sizes[name]


@dataclass(frozen=True)
class Op:
    """One op: what it computes and what it takes.

    name: as in `kernels/NAME.py`.
    function: the pure-PyTorch function; it returns one tensor or a tuple of them.
    shapes: each tensor argument's shape in letters, such as {"x": "rows cols"}.
    options: the other arguments that tests and tables use, one dict for each variant; ({},) if
        none. One named like a tensor replaces it, such as {"residual": None}.
    limits: the int64 arguments, and the letter that bounds their values, such as
        {"target": "cols"}. All other tensors are of one floating-point type.
    sizes: letters besides rows and cols, and their sizes in `inputs`, such as {"units": 24}.
    weights: the tensors that are drawn like a layer's weights, and the letter that their products
        are summed over, such as {"w": "cols"}.
    """

    name: str
    function: Callable[..., Tensor | tuple[Tensor, ...]]
    shapes: dict[str, str]
    options: tuple[dict, ...] = ({},)
    limits: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)

    def inputs(
        self,
        rows: int,
        cols: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        seed: int = 0,
        requires_grad: bool = False,
        without: Container[str] = (),
        **sizes: int,
    ) -> dict[str, Tensor]:
        """Random tensors for every tensor argument, the same whenever seed and device are the same.

        Each is offset + scale * normal noise, with an offset in [-2, 2] and a scale in [0.5, 2].
        Weights have no offset, and are divided by the square root of the size that they are summed
        over, so that sums of products do not grow with it.
        Integers are uniform below their limit; if that is 0, they are 0.

        requires_grad: of the floating-point tensors; integers have no gradient.
        without: arguments to leave out, because options replace them.
        sizes: of the op's other letters, such as units=4096, in place of its own.
        """
        letters = {"rows": rows, "cols": cols} | self.sizes | sizes
        generator = torch.Generator(device).manual_seed(seed)
        # Draws are made in a type at least as wide as the requested one.
        wide = torch.promote_types(dtype, torch.float32)
        tensors = {}
        for name, shape in self.shapes.items():
            size = [size_of(letter, letters) for letter in shape.split()]
            if name in self.limits:
                limit = max(letters[self.limits[name]], 1)
                tensors[name] = torch.randint(limit, size, device=device, generator=generator)
                continue
            noise = torch.randn(size, dtype=wide, device=device, generator=generator)
            offset, scale = torch.rand(2, dtype=wide, device=device, generator=generator)
            value = noise.mul_(0.5 + 1.5 * scale)
            if name in self.weights:
                value.div_(max(size_of(self.weights[name], letters), 1) ** 0.5)
            else:
                value.add_(4 * offset - 2)
            tensors[name] = value.to(dtype).requires_grad_(requires_grad)
        return {name: tensor for name, tensor in tensors.items() if name not in without}


def op(
    *options: dict,
    sizes: dict[str, int] | None = None,
    weights: dict[str, str] | None = None,
    **shapes: str,
) -> Callable[[Callable], Callable]:
    """Registers the function below it in `OPS`.

    shapes: each tensor argument's shape in the letters "rows" and "cols", such as x="rows cols";
        for integers with the letter that they stay below, such as target="rows, int64 < cols".
    options: the other arguments that tests and tables should use, a dict for each variant.
    sizes: further letters, and their default sizes.
    weights: tensors that `Op.inputs` draws as weights, and the letter that each is summed over.

    Raises TypeError for an argument that the function does not have, and ValueError for a shape of
    another form."""

    def register(function: Callable) -> Callable:
        name = function.__name__
        given = set(shapes).union(*options)
        if unknown := given - inspect.signature(function).parameters.keys():
            raise TypeError(f"{name} has no argument {', '.join(sorted(unknown))}")
        letters, limits, known = {}, {}, {"rows", "cols", *(sizes or ())}
        for argument, text in shapes.items():
            found = _ARGUMENT.fullmatch(text)
            names = [letter.lstrip(_DIGITS) for letter in found[1].split()] if found else []
            if not found or {*names, found[2] or "rows"} - known:
                raise ValueError(
                    f"{name}: the shape of {argument} is {text!r}; wanted is one such as "
                    "'rows cols' or 'rows, int64 < cols'"
                )
            letters[argument] = found[1]
            if found[2]:
                limits[argument] = found[2]
        OPS[name] = Op(
            name, function, letters, options or ({},), limits, sizes or {}, weights or {}
        )
        return function

    return register


@op(x="rows cols")
def square(x: Tensor) -> Tensor:
    """y = x * x"""
    return x * x


@op(x="rows cols")
def relu(x: Tensor) -> Tensor:
    """y = max(x, 0); a NaN stays a NaN"""
    return torch.relu(x)


@op(x="rows cols", scale="cols", bias="cols")
def scale_bias_relu(x: Tensor, scale: Tensor | float, bias: Tensor) -> Tensor:
    """y[r, c] = max(x[r, c] * scale[c] + bias[c], 0)"""
    return torch.relu(x * scale + bias)


@op({"dim": -1}, {"dim": None}, x="rows cols")
def reduce_sum(x: Tensor, dim: int | None = -1) -> Tensor:
    """y[r] = sum over c of x[r, c]; with dim=None, y = sum over all of x"""
    return x.sum(dim)


@op(x="rows cols", weight="cols", bias="cols")
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """y[r, c] = (x[r, c] - mean[r]) / sqrt(var[r] + eps) * weight[c] + bias[c]

    mean[r] and var[r] are those of row r; var divides by cols, not by cols - 1.
    Source: Ba, Kiros, Hinton, "Layer Normalization", 2016.
    """
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


@op({}, {"residual": None}, x="rows cols", weight="cols", residual="rows cols")
def rms_norm(
    x: Tensor, weight: Tensor, residual: Tensor | None = None, eps: float = 1e-6
) -> Tensor | tuple[Tensor, Tensor]:
    """y[r, c] = s[r, c] / sqrt(average over c of s[r, c]^2 + eps) * weight[c], with s = x

    With a residual s = x + residual, and the result is (y, s).
    Source: Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    s = x if residual is None else x + residual
    y = torch.nn.functional.rms_norm(s, s.shape[-1:], weight, eps)
    return y if residual is None else (y, s)


@op(
    {"seed": 3},
    {"p": 0.5, "seed": 2**40 + 1, "offset": 5},
    x="rows cols",
    residual="rows cols",
    weight="cols",
    bias="cols",
)
def dropout_layer_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    bias: Tensor,
    p: float = 0.1,
    eps: float = 1e-5,
    seed: int | Tensor | None = None,
    offset: int = 0,
) -> tuple[Tensor, Tensor]:
    """y = layer_norm(s, weight, bias), s = residual + dropout(x, p); the result is (y, s)

    seed and offset decide which elements are dropped (see `factors`); with seed=None PyTorch does.
    Source: Srivastava et al., "Dropout", 2014.
    """
    if seed is None:
        s = residual + torch.nn.functional.dropout(x, p)
    else:
        s = residual + x * factors(x, p, seed, offset)
    return torch.nn.functional.layer_norm(s, s.shape[-1:], weight, bias, eps), s


def factors(x: Tensor, p: float, seed: int | Tensor, offset: int = 0, first: int = 0) -> Tensor:
    """What dropout multiplies x by, in x's shape and type: 0 with probability p, else 1 / (1 - p).

    Element i of x, counted row by row from `first` on, has 16 random bits. They come from `philox`
    with the key seed and the counter (i // 8, offset): from word i % 8 // 2 the lower half if i is
    even, else the upper half. The element is dropped if these bits, as a number, are below
    65536 * p, rounded. The p in 1 / (1 - p) is this rounded number / 65536.
    """
    dropped = int(65536 * p + 0.5)
    end = first + x.numel()
    draws = torch.arange(first // 8, (end + 7) // 8, device=x.device)
    words = philox(int(seed), draws, offset)
    bits = torch.stack((words & 0xFFFF, words >> 16), -1).flatten()[first % 8 :][: x.numel()]
    scale = 65536 / (65536 - dropped) if dropped < 65536 else 0.0
    return (bits >= dropped).view(x.shape).to(x.dtype) * scale


def philox(key: int, low: Tensor, high: int = 0) -> Tensor:
    """Four random words [..., 4], in int64, for each counter (low[...], high): Philox4x32-10.

    key and both halves of the counter are 64-bit numbers; the low word comes first.
    Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    word = 0xFFFFFFFF
    k0, k1 = key & word, key >> 32 & word
    c0, c1 = low & word, low >> 32 & word
    c2, c3 = (torch.full_like(low, half) for half in (high & word, high >> 32 & word))
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2  # 64 bits; masks remove the sign
        c0, c1, c2, c3 = (
            (p1 >> 32 & word) ^ c1 ^ k0,
            p1 & word,
            (p0 >> 32 & word) ^ c3 ^ k1,
            p0 & word,
        )
        k0, k1 = k0 + 0x9E3779B9 & word, k1 + 0xBB67AE85 & word
    return torch.stack((c0, c1, c2, c3), -1)


@op(a="rows cols", b="rows cols")
def swiglu(a: Tensor, b: Tensor) -> Tensor:
    """y = a / (1 + e^-a) * b

    Source: Shazeer, "GLU Variants Improve Transformer", 2020.
    """
    return torch.nn.functional.silu(a) * b


@op(x="rows cols")
def softmax(x: Tensor) -> Tensor:
    """y[r, c] = e^x[r, c] / sum over k of e^x[r, k]"""
    return torch.softmax(x, -1)


@op(
    {"reduction": "mean"},
    {"reduction": "none", "label_smoothing": 0.125},
    {"reduction": "sum", "ignore_index": 1},
    x="rows cols",
    target="rows, int64 < cols",
)
def cross_entropy(
    x: Tensor,
    target: Tensor,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """y[r] = log(sum over c of e^x[r, c]) - x[r, target[r]]; then their mean, their sum or none

    Rows whose target is ignore_index do not count. With label_smoothing e, the loss is (1 - e) *
    y[r] + e * the average of y[r] over all targets.
    """
    loss = torch.nn.functional.cross_entropy(
        x.reshape(target.numel(), x.shape[-1]),
        target.reshape(-1),
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    return loss.reshape(target.shape) if reduction == "none" else loss


def product(x: Tensor, w: Tensor) -> Tensor:
    """x w^T for x [..., cols], and w [units, cols] or [..., units, cols].

    In float64, as the truth, it uses torch.sum, whose pairwise sums lose fewer digits than a BLAS
    product, which may err as the kernel does. That takes memory, so large products use BLAS.
    """
    if x.dtype == torch.float64 and x.numel() * w.shape[-2] < 2**25:
        return (x[..., None, :] * (w if w.dim() == 2 else w[..., None, :, :])).sum(-1)
    return x @ w.mT


@op(
    {},
    {"act": "swiglu", "residual": None, "scale": 2**-10},
    sizes={"units": 24},
    x="rows cols",
    w="units cols",
    bias="units",
    residual="rows units",
)
def matmul(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    act: str = "none",
    scale: float = 1.0,
) -> Tensor:
    """y = act(scale * x w^T + bias) + residual

    act is none, relu, gelu or silu; or swiglu, y = silu(a) * b, where a and b are the two halves of
    scale * x w^T + bias.
    """
    z = product(x, w)
    if scale != 1:
        z = z * scale
    if bias is not None:
        z = z + bias
    if act == "swiglu":
        y = swiglu(*z.chunk(2, -1))
    else:
        y = z if act == "none" else getattr(torch.nn.functional, act)(z)
    return y if residual is None else y + residual


def grouped_matmul(x: Tensor, w: Tensor, offsets: Tensor, act: str = "none") -> Tensor:
    """y = act(x w^T) with each expert's own w: x [rows, cols], w [experts, units, cols].

    Expert i has rows offsets[i - 1] to offsets[i] - 1; rows of no expert are 0. (It is not among
    the OPS, because `Op.inputs` draws no offsets.)
    """
    begins = [0, *offsets.tolist()]
    groups = [
        matmul(x[begins[i] : begins[i + 1]], each, act=act) for i, each in enumerate(w.unbind())
    ]
    units = w.shape[1] // (2 if act == "swiglu" else 1)
    return torch.cat([*groups, x.new_zeros(len(x) - begins[-1], units)])


@op(
    {"bias": None},
    {"reduction": "none", "label_smoothing": 0.125, "ignore_index": 1},
    sizes={"classes": 21},
    weights={"w": "cols"},
    x="rows cols",
    w="classes cols",
    target="rows, int64 < classes",
    bias="classes",
)
def linear_cross_entropy(
    x: Tensor,
    w: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """y = cross_entropy of the logits x w^T + bias, for all classes of a row at once"""
    logits = product(x, w) if bias is None else product(x, w) + bias
    return cross_entropy(logits, target, reduction, ignore_index, label_smoothing)


@op({}, {"causal": True}, sizes={"keys": 40}, q="rows cols", k="keys cols", v="keys cols")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
) -> Tensor:
    """y[r, c] = sum over n of softmax over n of (scale * sum over d of q[r, d] * k[n, d]) * v[n, c]

    The scale is 1 / sqrt(cols) unless it is given. With causal, row r sees keys n up to r + keys -
    rows; with window = (left, right), those from r + keys - rows - left to r + keys - rows + right,
    where -1 means no limit. The result of a row that sees no key is 0. k and v may have fewer
    leading dimensions than q, and fewer heads (the third dimension from the end): GQA.
    Source: Vaswani et al., "Attention is all you need", 2017.
    """
    if k.dim() > 2 and k.shape[-3] != q.shape[-3]:
        k, v = (t.repeat_interleave(q.shape[-3] // k.shape[-3], -3) for t in (k, v))
    scale = max(q.shape[-1], 1) ** -0.5 if scale is None else scale
    scores = product(q, k) * scale
    left, right = (-1, -1) if window is None else window
    right = 0 if causal else right
    rows, keys = q.shape[-2] if q.dim() > 1 else 1, k.shape[-2]
    r = torch.arange(keys - rows, keys, device=q.device)[:, None]
    n = torch.arange(keys, device=q.device)
    hidden = (n < r - left) & (left >= 0) | (n > r + right) & (right >= 0)
    hidden = hidden.view(scores.shape[-2:] if q.dim() > 1 else -1)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1).masked_fill(hidden, 0)
    return product(weights, v.mT)


def attention_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Tensor | None = None,
    block_table: Tensor | None = None,
    scale: float | None = None,
    window: int | None = None,
) -> Tensor:
    """attention of the last tokens of each sequence, q [batch, heads, queries, cols].

    k and v are [batch, kv_heads, tokens, cols] or, with a block_table [batch, max_pages], pages
    [pages, page_size, kv_heads, cols]. Sequence i has lengths[i] tokens. A query sees the tokens up
    to its own; with a window, its own and `window` before it. (Not among the OPS: no gradient.)
    """
    room = k.shape[-2] if block_table is None else block_table.shape[1] * k.shape[1]
    sees = {"causal": True, "window": (-1 if window is None else window, -1), "scale": scale}
    sequences = []
    for i in range(q.shape[0]):
        length = room if lengths is None else int(lengths[i])
        if block_table is None:
            keys, values = k[i], v[i]
        else:
            pages = block_table[i, : -(-length // max(k.shape[1], 1))].long()
            keys, values = (t[pages].flatten(0, 1).transpose(0, 1) for t in (k, v))
        sequences.append(attention(q[i], keys[:, :length], values[:, :length], **sees))
    return torch.stack(sequences) if sequences else torch.empty_like(q)


def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
) -> Tensor:
    """attention of each sequence alone: q [tokens, heads, cols], k and v [tokens, heads, cols].

    Sequence i has rows cu_seqlens_q[i] to cu_seqlens_q[i + 1] - 1 of q, and likewise of k and v;
    rows of no sequence are 0. (Not among the OPS, because `Op.inputs` draws no lengths.)
    """
    rows, keys = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    heads_first = [t.transpose(0, 1) for t in (q, k, v)]
    sequences = [torch.zeros_like(q[: rows[0]])]
    for i in range(len(rows) - 1):
        of_rows, of_keys = slice(rows[i], rows[i + 1]), slice(keys[i], keys[i + 1])
        its = (t[:, of] for t, of in zip(heads_first, (of_rows, of_keys, of_keys), strict=True))
        sequences.append(attention(*its, causal, window, scale).transpose(0, 1))
    return torch.cat([*sequences, torch.zeros_like(q[rows[-1] :])])


def quantize(x: Tensor, scaling: str = "row", scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(q, scale): q = x / scale in float8_e4m3fn, scale = the largest |x| of a group / 448.

    A group is a row, 1x128 or 128x128 elements. With "tensor" it is all of x, and the scale is
    given. (Not among the OPS: it has no gradient.)
    """
    if scaling != "tensor":
        *leading, cols = x.shape
        rows = x.shape[:-1].numel()
        high, wide = {"row": (1, max(cols, 1)), "1x128": (1, 128), "128x128": (128, 128)}[scaling]
        down, across = -(-rows // high), 1 if scaling == "row" else -(-cols // wide)
        sizes = torch.zeros(down * high, across * wide, device=x.device)
        sizes[:rows, :cols] = x.abs().view(rows, cols)
        scale = sizes.view(down, high, across, wide).amax((1, 3)).clamp(min=1e-12) / 448
        each = scale.repeat_interleave(high, 0)[:rows].repeat_interleave(wide, 1)[:, :cols]
        scale = scale if high > 1 else scale.view(*leading, across)
    quotient = x.float() / (scale if scaling == "tensor" else each.view(x.shape))
    return quotient.clamp(-448, 448).to(torch.float8_e4m3fn), scale


def dequantize(q: Tensor, scale: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """q * scale for q [..., cols] and scales as `quantize` makes them.

    The shape of the scales tells what shares one: with several scales per row, 128 neighbours of a
    row; with fewer rows of scales than q has rows, 128 rows.
    """
    wide = scale.to(dtype)
    if scale.dim():
        if wide.shape[-1] != 1:
            wide = wide.repeat_interleave(128, -1)[..., : q.shape[-1]]
        if q.dim() > 1 and wide.shape[0] != q.shape[0]:
            wide = wide.repeat_interleave(128, 0)[: q.shape[0]]
    return q.to(dtype) * wide


def swizzle_scales(scales: Tensor) -> Tensor:
    """Scales [rows, blocks], a byte each, in tensor memory's tiles of 128 rows x 4 blocks.

    The scale of row r and block j of a tile is byte r % 32 * 16 + r / 32 * 4 + j of the tile.
    Bytes past the last row and block are 0.
    """
    rows, blocks = scales.shape
    down, across = -(-rows // 128), -(-blocks // 4)
    padded = torch.zeros(down * 128, across * 4, dtype=torch.uint8, device=scales.device)
    padded[:rows, :blocks] = scales.view(torch.uint8)
    tiles = padded.view(down, 4, 32, across, 4).permute(0, 3, 2, 1, 4)
    return tiles.flatten().view(scales.dtype)


def quantize_mxfp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """(q, scales): q = x / scale in float8_e4m3fn, with one scale, a power of two, per 32 elements.

    The scale is the largest |x| / 448, rounded up to a power of two, or NaN if that |x| is not
    finite. (Not among the OPS: it has no gradient.)
    """
    blocks = x.float().reshape(x.shape[:-1].numel(), x.shape[-1] // 32, 32)
    largest = blocks.abs().amax(-1, keepdim=True)
    bits = (largest * (1 / 448)).view(torch.int32)
    up = torch.where(bits < 2**23, bits > 2**22, bits % 2**23 != 0)  # 2^-127 is subnormal
    scale = torch.where(largest.isfinite(), (bits >> 23) + up, 255)
    factor = torch.where(scale < 255, (254 - scale) * 2**23, 0x7FC00000).int().view(torch.float32)
    q = (blocks * factor).to(torch.float8_e4m3fn).view(x.shape)
    return q, swizzle_scales(scale.squeeze(-1).to(torch.uint8)).view(torch.float8_e8m0fnu)


def quantize_nvfp4(x: Tensor, scale: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(q, scales, scale): q = x / (scales * scale) in e2m1, with one of scales per 16 elements.

    A block's is its largest |x| / (6 * scale) in float8_e4m3fn, or NaN if that |x| is not finite.
    (Not among the OPS: it has no gradient.)
    """
    if scale is None:
        largest = x.float().abs().amax() if x.numel() else torch.tensor(6.0 * 448, device=x.device)
        scale = (largest / (448 * 6)).clamp(min=2.0**-126)
    blocks = x.float().reshape(x.shape[:-1].numel(), x.shape[-1] // 16, 16)
    largest = blocks.abs().amax(-1, keepdim=True)
    scales = (largest / (6 * scale)).clamp(-448, 448)
    scales = scales.masked_fill(~largest.isfinite(), torch.nan).to(torch.float8_e4m3fn)
    product = scales.float() * scale
    factor = (1 / product).clamp(max=torch.finfo(torch.float32).max)
    quotient = torch.where(product > 0, blocks * factor, 0.0).view(x.shape)
    ties = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # between codes; they go to the even one
    size = quotient.abs()
    steps = [size >= tie if i % 2 else size > tie for i, tie in enumerate(ties)]
    codes = sum(step.to(torch.uint8) for step in steps) | quotient.signbit().to(torch.uint8) << 3
    q = codes[..., 0::2] | codes[..., 1::2] << 4
    return q.view(torch.float4_e2m1fn_x2), swizzle_scales(scales.squeeze(-1)), scale


def dequantize_blocks(q: Tensor, scales: Tensor, scale: Tensor | None = None) -> Tensor:
    """q * scales * scale in float64, for results of `quantize_mxfp8` and `quantize_nvfp4`."""
    if q.dtype == torch.float4_e2m1fn_x2:
        codes = q.view(torch.uint8)
        codes = torch.stack((codes & 15, codes >> 4), -1).flatten(-2).long()
        sizes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device=q.device).double()
        numbers, block = torch.cat((sizes, -sizes))[codes], 16
    else:
        numbers, block = q.double(), 32
    *leading, cols = numbers.shape
    rows, blocks = math.prod(leading), cols // block
    down, across = -(-rows // 128), -(-blocks // 4)
    tiles = scales.double().view(down, across, 32, 4, 4).permute(0, 3, 2, 1, 4)
    each = tiles.reshape(down * 128, across * 4)[:rows, :blocks]
    y = numbers * each.repeat_interleave(block, 1).view(numbers.shape)
    return y if scale is None else y * scale.double()


def matmul_block_scaled(
    x: Tensor,
    w: Tensor,
    x_scales: Tensor,
    w_scales: Tensor,
    x_scale: Tensor | None = None,
    w_scale: Tensor | None = None,
) -> Tensor:
    """y = x w^T in float64, for MXFP8 or NVFP4 matrices.

    (It is not among the OPS: it has no gradient.)
    """
    return product(dequantize_blocks(x, x_scales, x_scale), dequantize_blocks(w, w_scales, w_scale))


def matmul_fp8(
    x: Tensor, w: Tensor, x_scale: Tensor, w_scale: Tensor, bias: Tensor | None = None
) -> Tensor:
    """y = (x * x_scale) (w * w_scale)^T + bias in float64, for float8_e4m3fn x and w.

    (It is not among the OPS: it has no gradient.)
    """
    y = product(dequantize(x, x_scale), dequantize(w, w_scale))
    return y if bias is None else y + bias


def matmul_w8a16(x: Tensor, w: Tensor, w_scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = x (w * w_scale)^T + bias in float64, for int8 w with a scale per row or 128 elements.

    (It is not among the OPS: it has no gradient.)
    """
    y = product(x.double(), dequantize(w, w_scale))
    return y if bias is None else y + bias


@op({}, {"interleaved": True}, cos="rows cols", sin="rows cols", qkv="rows 8cols")
def rope(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    heads: int = 2,
    kv_heads: int = 1,
    interleaved: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """(y0, y1, y2) = (q, k, v) of qkv, with q and k rotated: (a, b) becomes (a * cos - b * sin,
    b * cos + a * sin) for each pair of a head

    cos and sin have a number for each row and pair; the head size is 2 * cols. A row of qkv holds
    the heads of q, k and v, and each of the three results is [heads, rows, 2 * cols]. Pair c is
    elements c and cols + c of a head; with interleaved, 2 * c and 2 * c + 1.
    Source: Su et al., "RoFormer", 2021.
    """
    pairs = cos.shape[-1]
    x = qkv.unflatten(-1, (heads + 2 * kv_heads, 2 * pairs))
    if qkv.dim() > 1:
        x = x.transpose(-3, -2)
        cos, sin = (t.unsqueeze(-3) for t in (cos, sin))
    q_k, v = x.split((heads + kv_heads, kv_heads), -3 if qkv.dim() > 1 else -2)
    a, b = (
        q_k.unflatten(-1, (pairs, 2)).unbind(-1)
        if interleaved
        else (q_k[..., :pairs], q_k[..., pairs:])
    )
    turned = a * cos - b * sin, b * cos + a * sin
    y = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
    return *y.split((heads, kv_heads), -3 if qkv.dim() > 1 else -2), v
