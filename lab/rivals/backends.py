"""PyTorch's own kernels for matrix products, by backend, with our ops' names and arguments.

The reference runs several kernels where these run one, or leaves the choice to PyTorch.
"""

import functools
from collections.abc import Callable, MutableMapping

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.weak import WeakTensorKeyDictionary

from lab.rivals.truth import truth


def _cublaslt(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    act: str = "none",
    scale: float = 1.0,
) -> Tensor:
    """A matrix product with a cuBLASLt epilogue; its gelu is the tanh approximation."""
    if act in ("relu", "gelu") and bias is not None and residual is None and scale == 1:
        return torch._addmm_activation(bias, x, w.mT, use_gelu=act == "gelu")
    added = [t for t in (bias, residual) if t is not None]
    if act == "none" and len(added) == 1:
        return torch.addmm(added[0], x, w.mT, alpha=scale)
    raise NotImplementedError("PyTorch has no epilogue of cuBLASLt for it")


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    *,
    backend: SDPBackend | None = None,
) -> Tensor:
    """scaled_dot_product_attention with one backend, or with the one that PyTorch chooses."""
    if window is not None or (causal and q.shape[-2] != k.shape[-2]):
        raise NotImplementedError("scaled_dot_product_attention masks that by a tensor alone")
    grouped = q.dim() > 2 and k.shape[-3] != q.shape[-3]
    call = functools.partial(
        functional.scaled_dot_product_attention,
        *(q, k, v),
        is_causal=causal,
        scale=scale,
        enable_gqa=grouped,
    )
    if backend is None:
        return call()
    with sdpa_kernel(backend):
        return call()


def _decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    *,
    backend: SDPBackend | None = None,
) -> Tensor:
    """One query per sequence, which attends to its whole cache."""
    return _attention(q, k, v, scale=scale, backend=backend)


@functools.lru_cache(maxsize=1)
def _compiled_flex(*what: object) -> Callable[..., Tensor]:
    """flex_attention, compiled for one `what`: torch.compile gives up after eight shapes."""
    from torch.nn.attention.flex_attention import flex_attention

    torch.compiler.reset()
    return torch.compile(flex_attention, dynamic=False)


@functools.cache
def _causal_blocks(rows: int, keys: int, device: torch.device) -> object:
    from torch.nn.attention.flex_attention import create_block_mask

    def sees(batch: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        return row + keys - rows >= key

    return create_block_mask(sees, None, None, rows, keys, device=device)


def _flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
) -> Tensor:
    """flex_attention, compiled; its mask is made once per size and is not timed."""
    if window is not None:
        raise NotImplementedError("no mask of a window is written for flex_attention here")
    mask = _causal_blocks(q.shape[-2], k.shape[-2], q.device) if causal else None
    flex = _compiled_flex(q.shape, k.shape, q.dtype, causal, q.requires_grad)
    grouped = k.shape[-3] != q.shape[-3]
    return flex(q, k, v, block_mask=mask, scale=scale, enable_gqa=grouped)


def _linear_cross_entropy(
    x: Tensor,
    w: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """cross_entropy of linear, which writes all logits to memory."""
    return functional.cross_entropy(
        functional.linear(x, w, bias),
        target,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )


def _dequantized(
    x: Tensor,
    w: Tensor,
    x_scale: Tensor,
    w_scale: Tensor,
    bias: Tensor | None = None,
    *,
    use_fast_accum: bool = False,
) -> Tensor:
    """A float32 product of the dequantized matrices: PyTorch multiplies FP8 on few machines.

    use_fast_accum may accumulate with fewer digits; this has all of them.
    """
    wide = [truth().dequantize(*each, torch.float32) for each in ((x, x_scale), (w, w_scale))]
    return functional.linear(*wide, bias if bias is None else bias.float()).to(torch.bfloat16)


def _of_blocks(
    x: Tensor,
    w: Tensor,
    x_scales: Tensor,
    w_scales: Tensor,
    x_scale: Tensor | None = None,
    w_scale: Tensor | None = None,
) -> Tensor:
    """A float32 product of the dequantized matrices, with a scale for each block."""
    operands = ((x, x_scales, x_scale), (w, w_scales, w_scale))
    wide = [truth().dequantize_blocks(*each).float() for each in operands]
    return functional.linear(*wide).to(torch.bfloat16)


def _scaled_mm(
    x: Tensor,
    w: Tensor,
    x_scale: Tensor,
    w_scale: Tensor,
    bias: Tensor | None = None,
    *,
    use_fast_accum: bool = False,
) -> Tensor:
    """cuBLASLt's FP8 matrix product."""
    return torch._scaled_mm(
        x,
        w.mT,
        x_scale,
        w_scale.mT,
        bias,
        out_dtype=torch.bfloat16,
        use_fast_accum=use_fast_accum,
    )


def _quantized(y: Tensor, scaling: str) -> tuple[Tensor, Tensor]:
    """y in FP8, and a scale for each row or for each 128 neighbours in a row."""
    groups = y.float().unflatten(-1, (-1, 128 if scaling == "1x128" else y.shape[-1]))
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    q = (groups / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    return q.flatten(-2), scale.squeeze(-1)


def _rms_norm_fp8(x: Tensor, weight: Tensor, scaling: str) -> tuple[Tensor, Tensor]:
    return _quantized(truth().rms_norm(x, weight), scaling)


def _swiglu_fp8(a: Tensor, b: Tensor, scaling: str) -> tuple[Tensor, Tensor]:
    return _quantized(truth().swiglu(a, b), scaling)


def _each_sequence(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """scaled_dot_product_attention of the packed sequences, one by one; the host waits."""
    sequences = []
    lengths = [cu_seqlens.diff().tolist() for cu_seqlens in (cu_seqlens_q, cu_seqlens_k)]
    q, k, v = q.split(lengths[0]), k.split(lengths[1]), v.split(lengths[1])
    for its in zip(q, k, v, strict=True):
        heads_first = (t.transpose(0, 1)[None] for t in its)
        sequences.append(_attention(*heads_first, causal, scale=scale)[0].transpose(0, 1))
    return torch.cat(sequences)


def _varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """PyTorch's own kernel for packed sequences, which is flash-attn's."""
    from torch.nn.attention.varlen import varlen_attn

    sees = (-1, 0) if causal else (-1, -1)
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return varlen_attn(q, k, v, *lengths, scale=scale, window_size=sees)


def _grouped_mm(x: Tensor, w: Tensor, offsets: Tensor, act: str = "none") -> Tensor:
    """PyTorch's grouped product, which fuses nothing."""
    z = torch._grouped_mm(x, w.mT, offsets)
    if act == "swiglu":
        return truth().swiglu(*z.chunk(2, -1))
    return z if act == "none" else getattr(functional, act)(z)


def _scales_of_rows(w_scale: Tensor, dtype: torch.dtype) -> Tensor:
    if w_scale.shape[-1] != 1:
        raise NotImplementedError("weights have a scale for each row alone here")
    return w_scale.flatten().to(dtype)


def _converted(x: Tensor, w: Tensor, w_scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """A product with weights that are converted when they are read, if torch.compile fuses that."""
    y = functional.linear(x, w.to(x.dtype)) * _scales_of_rows(w_scale, x.dtype)
    return y if bias is None else y + bias


def _int8pack(x: Tensor, w: Tensor, w_scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """PyTorch's own kernel for int8 weights."""
    y = torch._weight_int8pack_mm(x, w, _scales_of_rows(w_scale, x.dtype))
    return y if bias is None else y + bias


# Scales and unpacked weights, kept as long as the 8-bit weights that they belong to.
_UNPACKED: MutableMapping[Tensor, tuple[Tensor, Tensor]] = WeakTensorKeyDictionary()


def _unpacked(w: Tensor, w_scale: Tensor, dtype: torch.dtype) -> Tensor:
    scale, unpacked = _UNPACKED.get(w, (None, None))
    if scale is not w_scale or unpacked.dtype != dtype:
        unpacked = (w * w_scale).to(dtype)
        _UNPACKED[w] = w_scale, unpacked
    return unpacked


def _of_unpacked(x: Tensor, w: Tensor, w_scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """A product with weights in x's type, which are made at the first call and are not timed."""
    if w_scale.shape[-1] != 1:
        raise NotImplementedError("weights with a scale for each 128 columns are not unpacked here")
    return functional.linear(x, _unpacked(w, w_scale, x.dtype), bias)


# The PyTorch functions that people call where the reference is a formula.
CHOSEN: dict[str, Callable[..., Tensor]] = {
    "attention": _attention,
    "attention_decode": _decode,
    "attention_varlen": _each_sequence,
    "grouped_matmul": _grouped_mm,
    "linear_cross_entropy": _linear_cross_entropy,
    "matmul_fp8": _dequantized,
    "matmul_w8a16": _converted,
    "matmul_block_scaled": _of_blocks,
    "rms_norm_fp8": _rms_norm_fp8,
    "swiglu_fp8": _swiglu_fp8,
}

_SDPA = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}

# By the rival's name, and then by the op's.
BACKENDS: dict[str, dict[str, Callable[..., Tensor]]] = {
    "cublaslt": {"matmul": _cublaslt, "matmul_fp8": _scaled_mm},
    **{
        name: {
            op: functools.partial(CHOSEN[op], backend=backend)
            for op in ("attention", "attention_decode")
        }
        for name, backend in _SDPA.items()
    },
    "flex": {"attention": _flex},
    "varlen": {"attention_varlen": _varlen},
    "int8pack": {"matmul_w8a16": _int8pack},
    "unpacked": {"matmul_w8a16": _of_unpacked},
}
