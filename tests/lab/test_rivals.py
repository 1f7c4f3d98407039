"""Other people's kernels under our ops' names: layouts, options, and what they have not.

Libraries that need a GPU are stood in for by modules that compute the same in plain PyTorch, in the
layouts that the libraries' documentation gives.
"""

import importlib
import sys
import weakref
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import reference
from lab import rivals
from lab.rivals import backends
from lab.style import drawing

OTHERS = (
    "attention_decode",
    "attention_varlen",
    "matmul_fp8",
    "matmul_w8a16",
    "matmul_block_scaled",
    "grouped_matmul",
)
OPS = reference.OPS | {name: reference.Op(name, lambda: None, {}) for name in OTHERS}
X, W, BIAS, RESIDUAL = (torch.randn(shape) for shape in ((6, 16), (8, 16), (8,), (6, 8)))
MASKS = ({}, {"causal": True}, {"causal": True, "scale": 0.5})


def heads(batch: int, count: int, tokens: int, cols: int = 8) -> Tensor:
    return torch.randn(batch, count, tokens, cols)


Q, K, V = heads(2, 4, 16), heads(2, 4, 16), heads(2, 4, 16)
PACKED = {name: torch.randn(12, 4, 8) for name in "qkv"}
PACKED |= dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k"), torch.tensor([0, 4, 12]).int())
ONE, CACHE_K, CACHE_V = heads(2, 4, 1), heads(2, 2, 16), heads(2, 2, 16)


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None) -> Tensor:
    """What flash-attn computes, in its layout: [batch, tokens, heads, cols]."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return reference.attention(q, k, v, causal=causal, scale=scale).transpose(1, 2).contiguous()


def flash(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1)):
    assert window_size == (-1, -1)
    return attention(q, k, v, causal, softmax_scale)


def with_cache(q, k_cache, v_cache, k=None, v=None, softmax_scale=None, causal=False):
    assert k is None
    return attention(q, k_cache, v_cache, causal, softmax_scale)


def flash_varlen(q, k, v, *, softmax_scale, causal, window_size=(-1, -1), **lengths):
    assert window_size == (-1, -1)
    assert (lengths["max_seqlen_q"], lengths["max_seqlen_k"]) == (8, 8)
    return reference.attention_varlen(q, k, v, causal=causal, scale=softmax_scale, **lengths)


def flash_4_varlen(*tensors, window_size, **given):
    assert window_size == (None, None)
    return flash_varlen(*tensors, **given), None


def flash_4(q, k, v, causal=False, window_size=(None, None), softmax_scale=None):
    assert window_size == (None, None)
    return attention(q, k, v, causal, softmax_scale), None


def with_statistics(function):
    return lambda *given, **options: (function(*given, **options), None)


def bf16_gemm_nt(a: Tensor, b: Tensor, d: Tensor) -> None:
    d.copy_(a @ b.mT)


def fp8_gemm_nt(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], d: Tensor) -> None:
    d.copy_(reference.matmul_fp8(a[0], b[0], a[1], b[1]))


def gemm(A: Tensor, B: Tensor, bias: Tensor | None = None, alpha: float = 1.0) -> Tensor:
    assert A.shape[1] == B.shape[0]
    return alpha * A @ B if bias is None else alpha * A @ B + bias


def gemm_add(A, B, C, bias=None, alpha=1.0):
    return gemm(A, B, bias, alpha) + C


def gemm_act(A, B, bias=None, activation=None, alpha=1.0, store_preact=True):
    assert activation in ("relu", "silu")
    assert not store_preact
    return None, getattr(functional, activation)(gemm(A, B, bias, alpha))


class LigerRopeFunction:
    """Rotates q and k [batch, heads, tokens, cols], by tables of [1, tokens, ..].

    Of a head the first rotary_dim numbers, or as many as the tables have columns.
    """

    @staticmethod
    def apply(q, k, cos, sin, position_ids=None, unsqueeze_dim=1, rotary_dim=None):
        assert cos.shape[0] == 1
        turning = rotary_dim or min(cos.shape[-1], q.shape[-1])
        cos, sin = (t[0, :, : turning // 2] for t in (cos, sin))

        def rotated(x: Tensor) -> Tensor:
            a, b = x[..., :turning].chunk(2, -1)
            turned = (a * cos - b * sin, b * cos + a * sin)
            return torch.cat((*turned, x[..., turning:]), -1)

        return rotated(q), rotated(k)


MODULES = {
    "deep_gemm": {"deep_gemm": {"bf16_gemm_nt": bf16_gemm_nt, "fp8_gemm_nt": fp8_gemm_nt}},
    "flash_attn": {
        "flash_attn": {},
        "flash_attn.flash_attn_interface": {
            "flash_attn_func": flash,
            "flash_attn_with_kvcache": with_cache,
            "flash_attn_varlen_func": flash_varlen,
        },
    },
    "flash_attn_3": {
        "flash_attn_interface": {
            "flash_attn_func": with_statistics(flash),
            "flash_attn_with_kvcache": with_cache,
        }
    },
    "fa3_fwd": {
        "fa3_fwd_interface": {
            "flash_attn_func": flash,
            "flash_attn_varlen_func": flash_varlen,
        }
    },
    "flash_attn_4": {
        "flash_attn": {},
        "flash_attn.cute": {
            "flash_attn_func": flash_4,
            "flash_attn_varlen_func": flash_4_varlen,
        },
    },
    "quack": {
        "quack": {},
        "quack.rmsnorm": {},
        "quack.gemm_interface": {
            "gemm": gemm,
            "gemm_act": gemm_act,
            "gemm_add": gemm_add,
        },
    },
    "liger": {"liger_kernel": {"ops": SimpleNamespace(LigerRopeFunction=LigerRopeFunction)}},
}


@pytest.fixture
def library(monkeypatch):
    """Puts a library of MODULES in the place of the real one, and returns its file here."""

    def installed(name: str) -> ModuleType:
        for module, content in MODULES[name].items():
            made = ModuleType(module)
            made.__spec__ = importlib.machinery.ModuleSpec(module, None)
            vars(made).update(content)
            monkeypatch.setitem(sys.modules, module, made)
            if parent := sys.modules.get(module.rpartition(".")[0]):
                setattr(parent, module.rpartition(".")[2], made)
        monkeypatch.delitem(sys.modules, f"lab.rivals.{name}", raising=False)
        monkeypatch.delattr(rivals, name, raising=False)
        return importlib.import_module(f"lab.rivals.{name}")

    yield installed
    for name in MODULES:  # what was imported here knows the stand-ins
        sys.modules.pop(f"lab.rivals.{name}", None)


def same(result: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


# ---- libraries


@pytest.mark.parametrize("name", ["flash_attn", "flash_attn_3", "fa3_fwd", "flash_attn_4"])
@pytest.mark.parametrize("options", MASKS, ids=str)
def test_flash_attn_gets_its_own_layout(library, name, options):
    same(library(name).attention(Q, K, V, **options), reference.attention(Q, K, V, **options))


@pytest.mark.parametrize("name", ["flash_attn", "flash_attn_3"])
def test_flash_attn_decodes_from_a_cache(library, name):
    result = library(name).attention_decode(ONE, CACHE_K, CACHE_V)
    same(result, reference.attention_decode(ONE, CACHE_K, CACHE_V))


def test_deep_gemm_multiplies_and_fuses_nothing(library):
    module = library("deep_gemm")
    same(module.matmul(X, W), X @ W.T)
    for fused in ({"bias": BIAS}, {"residual": RESIDUAL}, {"act": "relu"}, {"scale": 2.0}):
        with pytest.raises(NotImplementedError, match="DeepGEMM"):
            module.matmul(X, W, **fused)


@pytest.mark.parametrize("name", ["flash_attn", "fa3_fwd", "flash_attn_4"])
def test_flash_attn_takes_packed_sequences(library, name):
    given = {**PACKED, "max_seqlen_q": 8, "max_seqlen_k": 8, "causal": True}
    same(library(name).attention_varlen(**given), reference.attention_varlen(**given))


def test_a_build_of_the_forward_pass_alone_says_so(library):
    attention = library("fa3_fwd").attention
    for q, options in (
        (Q.clone().requires_grad_(), {}),
        (Q, {"window": (4, 0)}),
        (Q.half(), {}),
    ):
        with pytest.raises(NotImplementedError, match="fa3-fwd has no backward pass, no windows"):
            attention(q, K, V, **options)


def test_deep_gemm_multiplies_eight_bits_with_scales_of_blocks_alone(library):
    module = library("deep_gemm")
    x, w = torch.randn(4, 256), torch.randn(128, 256)
    (x, x_scale), (w, w_scale) = reference.quantize(x, "1x128"), reference.quantize(w, "128x128")
    expected = reference.matmul_fp8(x, w, x_scale, w_scale).bfloat16()
    assert torch.equal(module.matmul_fp8(x, w, x_scale, w_scale), expected)
    with pytest.raises(NotImplementedError, match="DeepGEMM has scales"):
        module.matmul_fp8(x, w, x_scale, torch.ones(128, 1))


@pytest.mark.parametrize(
    "ends",
    [
        {},
        {"bias": BIAS},
        {"bias": BIAS, "residual": RESIDUAL, "scale": 0.5},
        {"bias": BIAS, "act": "relu"},
        {"act": "silu"},
    ],
    ids=["nothing", "bias", "residual", "relu", "silu"],
)
def test_quack_multiplies(library, ends):
    same(library("quack").matmul(X, W, **ends), reference.matmul(X, W, **ends))


def test_quack_says_what_it_has_not(library):
    with pytest.raises(NotImplementedError, match="quack"):
        library("quack").matmul(X, W, BIAS, act="gelu")


def test_liger_rotates_what_is_split(library):
    qkv, tables = torch.randn(2, 16, (4 + 2 * 2) * 8), torch.randn(2, 16, 4)
    results = library("liger").rope(qkv, *tables, heads=4, kv_heads=2)
    for result, expected in zip(
        results, reference.rope(qkv, *tables, heads=4, kv_heads=2), strict=True
    ):
        same(result, expected)
    with pytest.raises(NotImplementedError, match="pairs of Llama"):
        library("liger").rope(qkv, *tables, interleaved=True)


def test_a_library_that_is_there_is_a_rival_of_what_it_has(library):
    library("flash_attn")
    assert "flash_attn" in rivals.rivals_of(OPS["attention"])
    assert "flash_attn" not in rivals.rivals_of(OPS["matmul"])
    assert rivals.libraries_of("attention_varlen") == ["flash_attn", "fa3_fwd", "flash_attn_4"]
    rival = rivals.RIVALS["flash_attn"](OPS["attention"])
    same(rival.function(Q, K, V), reference.attention(Q, K, V))


def test_a_library_that_cannot_be_imported_is_asked_and_says_why(library, monkeypatch):
    library("deep_gemm")

    def broken(name: str) -> dict:
        raise ImportError("undefined symbol: of another release of torch")

    monkeypatch.setattr(rivals, "_functions", broken)
    assert "deep_gemm" in rivals.rivals_of(OPS["matmul"])
    with pytest.raises(ImportError, match="undefined symbol"):
        rivals.RIVALS["deep_gemm"](OPS["matmul"])


# ---- PyTorch's own kernels


def test_each_backend_is_a_rival_of_its_ops():
    assert rivals.rivals_of(OPS["matmul"])[:3] == ["eager", "compile", "cublaslt"]
    names = ["eager", "compile", "cudnn", "flash", "efficient", "flex"]
    assert rivals.rivals_of(OPS["attention"])[:6] == names
    assert rivals.rivals_of(OPS["attention_decode"])[2:5] == ["cudnn", "flash", "efficient"]
    with pytest.raises(ValueError, match="rival flex: PyTorch has no matmul there; it has atten"):
        rivals.RIVALS["flex"](OPS["matmul"])


def test_every_rival_has_its_look_and_no_two_of_an_op_the_same():
    for op in OPS.values():
        names = [name for name in rivals.RIVALS if _has(name, op.name)]
        looks = [tuple(drawing.look(name, ["best"]).values()) for name in names]
        assert len(set(looks)) == len(looks)


def _has(name: str, op: str) -> bool:
    known = {
        "liger": (
            *("layer_norm", "rms_norm", "softmax", "swiglu", "rope"),
            *("cross_entropy", "linear_cross_entropy"),
        ),
        "quack": ("rms_norm", "softmax", "cross_entropy", "matmul"),
        "deep_gemm": ("matmul", "matmul_fp8"),
        "flash_attn": ("attention", "attention_decode", "attention_varlen"),
        "flash_attn_3": ("attention", "attention_decode"),
        "fa3_fwd": ("attention", "attention_varlen"),
        "flash_attn_4": ("attention", "attention_varlen"),
    } | {backend: tuple(ops) for backend, ops in backends.BACKENDS.items()}
    return op in known.get(name, (op,))


@pytest.mark.parametrize(
    "ends",
    [
        {"bias": BIAS},
        {"residual": RESIDUAL, "scale": 0.5},
        {"bias": BIAS, "act": "relu"},
        {"bias": BIAS, "act": "gelu"},
    ],
    ids=["bias", "residual", "relu", "gelu"],
)
def test_cublaslt_has_these_ends(ends):
    result = rivals.RIVALS["cublaslt"](OPS["matmul"]).function(X, W, **ends)
    expected = reference.matmul(X, W, **ends)
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=2e-3)  # gelu by tanh


@pytest.mark.parametrize(
    "ends",
    [{}, {"bias": BIAS, "act": "silu"}, {"bias": BIAS, "residual": RESIDUAL}],
    ids=["nothing", "silu", "residual"],
)
def test_cublaslt_says_what_it_has_not(ends):
    with pytest.raises(NotImplementedError, match="no epilogue"):
        rivals.RIVALS["cublaslt"](OPS["matmul"]).function(X, W, **ends)


@pytest.mark.parametrize("options", MASKS, ids=str)
def test_what_people_call_for_attention_is_attention(options):
    result = backends.CHOSEN["attention"](Q, K, V, **options)
    same(result, reference.attention(Q, K, V, **options))
    flash = rivals.RIVALS["flash"](OPS["attention"]).function(Q, K, V, **options)
    same(flash, reference.attention(Q, K, V, **options))


def test_what_people_call_for_packed_sequences_is_attention_of_each():
    result = backends.CHOSEN["attention_varlen"](**PACKED, causal=True)
    same(result, reference.attention_varlen(**PACKED, causal=True))


@pytest.mark.parametrize("act", ["none", "gelu", "swiglu"])
def test_what_people_call_for_grouped_products(act):
    x, w = X.bfloat16(), torch.randn(3, 8, 16).bfloat16()
    offsets = torch.tensor((1, 1, len(x)), dtype=torch.int32)
    result = backends.CHOSEN["grouped_matmul"](x, w, offsets, act)
    expected = reference.grouped_matmul(x.double(), w.double(), offsets, act)
    torch.testing.assert_close(result.double(), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("bias", [None, BIAS.bfloat16()], ids=["alone", "bias"])
def test_what_people_call_for_weights_of_bytes(bias):
    x, scale = X.bfloat16(), torch.rand(8, 1) / 127
    w = torch.randint(-127, 128, (8, 16)).char()
    expected = reference.matmul_w8a16(x, w, scale, bias).float()
    for function in (
        backends.CHOSEN["matmul_w8a16"],
        backends.BACKENDS["int8pack"]["matmul_w8a16"],
        backends.BACKENDS["unpacked"]["matmul_w8a16"],
    ):
        result = function(x, w, scale, bias).float()
        torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-2)
        with pytest.raises(NotImplementedError, match="a scale for each"):
            function(x, w, torch.rand(8, 2))


def test_unpacked_weights_live_as_long_as_those_of_bytes():
    x, scale, w = X.bfloat16(), torch.rand(8, 1), torch.randint(-127, 128, (8, 16)).char()
    product = backends.BACKENDS["unpacked"]["matmul_w8a16"]
    product(x, w, scale)
    unpacked = backends._unpacked(w, scale, x.dtype)
    assert unpacked is backends._unpacked(w, scale, x.dtype), "made once"
    alive = weakref.ref(unpacked)
    del unpacked
    assert alive() is not None
    del w
    assert alive() is None


def test_what_people_call_for_decoding_is_decoding():
    result = backends.CHOSEN["attention_decode"](ONE, CACHE_K, CACHE_V)
    same(result, reference.attention_decode(ONE, CACHE_K, CACHE_V))


def test_masks_that_only_a_tensor_could_say_are_refused():
    with pytest.raises(NotImplementedError, match="by a tensor alone"):
        backends.CHOSEN["attention"](Q, K, V, window=(2, 0))
    with pytest.raises(NotImplementedError, match="by a tensor alone"):
        backends.CHOSEN["attention"](Q[..., :4, :], K, V, causal=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*flex_attention called without torch.compile")
@pytest.mark.parametrize("options", MASKS, ids=str)
def test_flex_attention_sees_what_ours_sees(options, monkeypatch):
    from torch.nn.attention.flex_attention import flex_attention

    monkeypatch.setattr(backends, "_compiled_flex", lambda *what: flex_attention)
    flex = rivals.RIVALS["flex"](OPS["attention"]).function
    same(flex(Q, K, V, **options), reference.attention(Q, K, V, **options))
    few = Q[..., 4:8, :]
    same(flex(few, K, V, **options), reference.attention(few, K, V, **options))
    grouped = K[:, :2], V[:, :2]
    same(flex(Q, *grouped, **options), reference.attention(Q, *grouped, **options))


def test_flex_attention_is_compiled_for_one_shape_at_a_time(monkeypatch):
    resets = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: resets.append(None))
    backends._compiled_flex.cache_clear()
    for shape in ((2, 4), (2, 4), (4, 2), (2, 4)):
        backends._compiled_flex(shape)
    assert len(resets) == 3
    backends._compiled_flex.cache_clear()
