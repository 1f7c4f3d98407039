"""Small calls, from Python, of strangers' functions that no main() calls, or one for minutes.

Each is compared with PyTorch's result in float32 of the same numbers. A binding is a few lines of
C++ that are compiled with the file, in which {function}, {stem} and {path} are its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

Check = Callable[[Any, str], float]


@dataclass(frozen=True)
class Call:
    """How functions of somebody's files are called.

    Attributes:
        source: the folder's name.
        files: a pattern of paths in it; headers, too.
        binding: C++ that makes a function callable from Python, if the file alone does not.
        function: a pattern of its name in the file; the last that it matches.
        check: is given the loaded library and that name, and returns by how much the result is
            off, as a part of the largest value that is expected.
        limit: what is right: half of the bits of a 16-bit type, unless the formula is exact.
        flags: for the compiler.
        include: folders of headers in the source.
    """

    source: str
    files: str
    binding: str
    check: Check
    function: str = r"\bvoid (\w+)\("
    limit: float = 1e-2
    flags: tuple[str, ...] = ()
    include: tuple[str, ...] = ()

    def text(self, path: Path) -> tuple[str, str]:
        """Of the binding for this file, and the function's name."""
        found = re.findall(self.function, path.read_text(errors="replace"))
        function = found[-1] if found else path.stem
        words = {"function": function, "stem": path.stem, "path": str(path)}
        text = self.binding
        for word, value in words.items():
            text = text.replace(f"{{{word}}}", value)
        return text, function


def call_of(source: str, name: str) -> Call | None:
    """How a file is called, if it is."""
    fitting = (call for call in CALLS if call.source == source and re.fullmatch(call.files, name))
    return next(fitting, None)


def _off(result: torch.Tensor, expected: torch.Tensor) -> float:
    difference = (result.float() - expected.float()).abs().max() / expected.float().abs().max()
    return float("inf") if difference.isnan() else difference.item()


def _product(
    m: int,
    n: int,
    k: int,
    dtype: torch.dtype = torch.float16,
    out: torch.dtype | None = None,
    transposed: bool = True,
    call: Callable[..., None] = lambda kernel, _, *arguments: kernel.call(*arguments),
) -> Check:
    """C [m, n] of A [m, k] and B, which is [n, k] or, if it is not transposed, [k, n]."""

    def check(kernel: Any, function: str) -> float:
        generator = torch.Generator().manual_seed(0)
        a = _numbers((m, k), dtype, generator)
        b = _numbers((n, k) if transposed else (k, n), dtype, generator)
        c = torch.zeros(m, n, dtype=out or dtype)
        call(kernel, function, a, b, c, m, n, k)
        return _off(c, a.float() @ (b.float().T if transposed else b.float()))

    return check


def _numbers(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator):
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(-128, 128, shape, generator=generator).to(dtype)


def _attention(
    shape: tuple[int, int, int, int], dtype: torch.dtype, call: Callable[..., torch.Tensor | None]
) -> Check:
    """O of Q, K and V, all [batch, heads, rows, numbers]."""

    def check(kernel: Any, function: str) -> float:
        generator = torch.Generator().manual_seed(0)
        q, k, v = (_numbers(shape, dtype, generator) for _ in range(3))
        o = torch.zeros_like(q)
        returned = call(kernel, function, q, k, v, o)
        o = o if returned is None else returned
        expected = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
        return _off(o, expected)

    return check


def _of_packed_nibbles(kernel: Any, _: str) -> float:
    m, n, k = 64, 128, 128
    a, b = (torch.randint(-8, 8, (rows, k)) for rows in (m, n))
    packed = [(x[:, ::2] & 15 | x[:, 1::2] << 4).to(torch.int8) for x in (a, b)]
    c = torch.zeros(m, n, dtype=torch.int32)
    kernel.call(*packed, c, m, n, k)
    return _off(c, a.float() @ b.float().T)


def _scaled(kernel: Any, _: str) -> float:
    m, n, k = 256, 256, 128
    a, b = (torch.randint(-128, 128, (rows, k), dtype=torch.int8) for rows in (m, n))
    of_a, of_b = torch.rand(m), torch.rand(n)
    c = torch.zeros(m, n, dtype=torch.bfloat16)
    kernel.call(a, b, of_a, of_b, c, m, n, k)
    return _off(c, (a.float() @ b.float().T) * of_a[:, None] * of_b)


# How the scales of rows come, by the version of the kernel: as its README says.
_ORDERS = {
    "mxfp8_mm_v1": None,
    "mxfp8_mm_v2": (32, (4, 8), (0, 2, 3, 1, 4)),
    "mxfp8_mm_v2b": (32, (4, 8), (0, 2, 3, 1, 4)),
    "mxfp8_mm_v3": (128, (4, 32), (0, 3, 2, 1, 4)),
}


def _block_scaled(kernel: Any, function: str) -> float:
    m, n, k = 256, 256, 256
    a, b = (torch.randn(rows, k).to(torch.float8_e4m3fn) for rows in (m, n))
    exponents = [torch.randint(-4, 5, (rows, k // 32)) for rows in (m, n)]
    given = [(each + 127).to(torch.uint8) for each in exponents]
    if order := _ORDERS[function]:
        rows, inner, places = order
        given = [
            each.view(len(each) // rows, *inner, k // 128, 4).permute(places).contiguous()
            for each in given
        ]
    c = torch.zeros(m, n, dtype=torch.bfloat16)
    kernel.call(a.view(torch.int8), b.view(torch.int8), *given, c, m, n, k)
    exact = [
        x.float() * (2.0**scale).repeat_interleave(32, 1)
        for x, scale in zip((a, b), exponents, strict=True)
    ]
    return _off(c, exact[0] @ exact[1].T)


def _of_spatters(kernels: dict[str, int], transposed: bool) -> Check:
    """Each of a file's kernels; a block makes a square of C of so many rows."""

    def check(kernel: Any, _: str) -> float:
        def call(kernel: Any, name: str, a: Any, b: Any, c: Any, m: int, n: int, k: int) -> None:
            rows = kernels[name]
            grid = (m // rows, n // rows)
            getattr(kernel, name)[grid, (16, 16)](a, b, c, m, n, k)

        # The first ones take N for K.
        check = _product(128, 128, 128, out=torch.float32, transposed=transposed, call=call)
        return max(check(kernel, name) for name in kernels)

    return check


def _by_columns(kernel: Any, _: str) -> float:
    """fast.cu's: C is stored by columns."""
    m, n, k = 2048, 2048, 128  # some take blocks by 16 x 8
    a, b = torch.randn(m, k).bfloat16(), torch.randn(n, k).bfloat16()
    c = torch.zeros(n, m).bfloat16()
    kernel.call(m, n, k, a, b, c)
    return _off(c, b.float() @ a.float().T)


_POINTERS = 'extern "C" void call(void* a, void* b, void* c, int m, int n, int k)'


def _of_types(a: str, c: str, header: str, more: str = "", function: str = "{function}") -> str:
    """The binding of `void f(const A*, const A*, C*, int m, int n, int k)`."""
    return f"""#include <{header}>
#include <cstdint>
void {function}(const {a}*, const {a}*, {c}*, int, int, int);
{_POINTERS} {{ {function}((const {a}*)a, (const {a}*)b, ({c}*)c, m, n, k); }}
{more}"""


def _of_launchers(a: str, c: str) -> str:
    """TensorCorePTX's: each file has a `launch_kernel`."""
    return f"""#include "include/config.h"
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cstdint>
void launch_kernel(const {a}*, const {a}*, {c}*, const GemmConfig&, cudaStream_t);
{_POINTERS} {{
    launch_kernel((const {a}*)a, (const {a}*)b, ({c}*)c, GemmConfig{{m, n, k, 1, 0, 1}}, 0);
}}"""


_ATTENTION = """#include <cuda_bf16.h>
using T = nv_bfloat16;
void {stem}(const T*, const T*, const T*, T*, int, int, int, int);
extern "C" void call(void* q, void* k, void* v, void* o, int heads, int rows, int dim) {
    {stem}((const T*)q, (const T*)k, (const T*)v, (T*)o, heads, rows, rows, dim);
}"""
_ROW_SCALED = """#include <cuda_bf16.h>
#include <cstdint>
void row_scaled_mm_v1(const int8_t*, const int8_t*, const float*, const float*, nv_bfloat16*, int,
                      int, int);
extern "C" void call(void* a, void* b, void* of_a, void* of_b, void* c, int m, int n, int k) {
    row_scaled_mm_v1((const int8_t*)a, (const int8_t*)b, (const float*)of_a, (const float*)of_b,
                     (nv_bfloat16*)c, m, n, k);
}"""
_BLOCK_SCALED = """#include <cuda_bf16.h>
void {stem}(const char*, const char*, const char*, const char*, nv_bfloat16*, int, int, int);
extern "C" void call(void* a, void* b, void* of_a, void* of_b, void* c, int m, int n, int k) {
    {stem}((const char*)a, (const char*)b, (const char*)of_a, (const char*)of_b, (nv_bfloat16*)c,
           m, n, k);
}"""
_FAST = """#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda/barrier>
#include <cassert>
#include <cstdio>
#include <vector>
#include <string>
typedef __nv_bfloat16 bf16;
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))
#define cudaCheck(error) ((void)(error))
#include "{path}"
extern "C" void call(int m, int n, int k, void* a, void* b, void* c) {
    {function}(m, n, k, (bf16*)a, (bf16*)b, (bf16*)c%s);
}"""
_HGEMM = f"""#include <cuda_fp16.h>
#include <cstddef>
void {{function}}(half*, half*, half*, size_t, size_t, size_t);
{_POINTERS} {{{{ {{function}}((half*)a, (half*)b, (half*)c, m, n, k); }}}}""".replace(
    "{{{{", "{"
).replace("}}}}", "}")
_CUTE = """#define main strangers_main
#include "{path}"
#undef main
extern "C" void call(void* a, void* b, void* c, int m, int n, int k) {
    using T = cute::half_t;
    gemm('T', 'N', m, n, k, 1.0f, (const T*)a, k, (const T*)b, k, 0.0f, (T*)c, m);
}"""
_TORCH = """#include <torch/extension.h>
using T = torch::Tensor;
void {function}(T, T, T%s);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("call", &{function}); }"""

BF16 = torch.bfloat16

CALLS = [
    Call(
        "learn-cuda",
        r"07_attention/attention_v\d\.cu",
        _ATTENTION,
        _attention((1, 2, 256, 128), BF16, lambda kernel, _, *x: kernel.call(*x, 2, 256, 128)),
    ),
    Call(
        "learn-cuda",
        r"02b_matmul_sm80/matmul_v\d\.cu",
        _of_types("nv_bfloat16", "nv_bfloat16", "cuda_bf16.h", function="{stem}"),
        _product(256, 256, 128, BF16),
    ),
    Call(
        "learn-cuda",
        r"02c_matmul_sm120/matmul_v\d\.cu",
        _of_types("nv_bfloat16", "nv_bfloat16", "cuda_bf16.h", function="{stem}_bf16"),
        _product(256, 256, 128, BF16),
    ),
    Call("learn-cuda", r"08_row_scaled_mm/row_scaled_mm_v1\.cu", _ROW_SCALED, _scaled),
    Call(
        "learn-cuda",
        r"02e_matmul_sm100/matmul_v\d\.cu",
        _of_types("nv_bfloat16", "nv_bfloat16", "cuda_bf16.h"),
        _product(512, 512, 256, BF16),
        function=r"\bvoid (matmul_v\d[abc]?)\(",
    ),
    Call(
        "learn-cuda",
        r"02e_matmul_sm100/_matmul_tmem\.cu",
        "",
        _product(
            256,
            256,
            128,
            BF16,
            call=lambda kernel, _, a, b, c, *mnk: c.copy_(kernel.matmul_tmem(a, b.T)),
        ),
    ),
    Call(
        "learn-cuda",
        r"02e_matmul_sm100/_matmul_v4_trans\.cu",
        "",
        _product(
            512,
            512,
            256,
            BF16,
            call=lambda kernel, _, a, b, c, *mnk: c.copy_(
                kernel.matmul_v4_trans(a.T.contiguous().T, b.T.contiguous())
            ),
        ),
    ),
    Call(
        "learn-cuda",
        r"09a_block_scaled_mm_sm120/mxfp8_mm_v\w+\.cu",
        _BLOCK_SCALED,
        _block_scaled,
        function=r"\bvoid (mxfp8_mm_v\w+)\(",
    ),
    Call(
        "TensorCorePTX",
        r"kernels/fp16_\w+\.cu",
        _of_launchers("half", "float"),
        _product(64, 128, 128, out=torch.float32, transposed=False),
        include=(".",),
    ),
    Call(
        "TensorCorePTX",
        r"kernels/int8_\w+\.cu",
        _of_launchers("int8_t", "int32_t"),
        _product(64, 128, 128, torch.int8, torch.int32),
        limit=0,
        include=(".",),
    ),
    Call(
        "TensorCorePTX",
        r"kernels/int4_\w+\.cu",
        _of_launchers("int8_t", "int32_t"),
        _of_packed_nibbles,
        limit=0,
        include=(".",),
    ),
    Call(
        "mma-matmul",
        r"kernel_1\.cu",
        "",
        _of_spatters({"mma_matmul_1_0": 32, "mma_matmul_1_1": 64}, transposed=False),
    ),
    Call(
        "mma-matmul",
        r"kernel_2\.cu",
        "",
        _of_spatters({"mma_matmul_2_0": 64, "mma_matmul_2_1": 64}, transposed=True),
    ),
    Call(
        "mma-matmul",
        r"kernel_3\.cu",
        "",
        _of_spatters(
            {f"mma_matmul_3_{n}": rows for n, rows in enumerate((64, 128, 128, 128, 128))},
            transposed=True,
        ),
    ),
    Call(
        "fast.cu",
        r"examples/matmul/matmul_[12]\.cuh",
        _FAST % "",
        _by_columns,
        function=r"void (runKernel\d+)\(",
        flags=("-DNDEBUG",),
    ),
    Call(
        "fast.cu",
        r"examples/matmul/matmul_\d+\.cuh",
        _FAST % ", nullptr",
        _by_columns,
        function=r"void (runKernel\d+)\(",
        flags=("-DNDEBUG",),
    ),
    Call(
        "cutlass",
        r"examples/cute/tutorial/(sgemm_sm80|hopper/wgmma(_tma)?_sm90)\.cu",
        _CUTE,
        _product(  # C is stored by columns
            256, 256, 128, call=lambda kernel, _, a, b, c, m, n, k: kernel.call(b, a, c, n, m, k)
        ),
        include=("tools/util/include",),
    ),
    Call(
        "cuda_hgemm",
        r"src/w?mma/\w+\.cu",
        _HGEMM,
        _product(512, 512, 128),
        function=r"\bvoid (w?mma\w+)\(half \*A",
        limit=3e-2,  # sums of float16
        include=("src/common",),
    ),
    Call(
        "LeetCUDA",
        r"kernels/flash-attn/mma/\w+/\w+\.cu",
        _TORCH % ", T, int",
        _attention((1, 1, 256, 64), torch.float16, lambda kernel, _, *x: kernel.call(*x, 2)),
        function=r"\bvoid (flash_attn_mma\w+)\(\s*torch::Tensor",
        limit=3e-2,
        include=("kernels/flash-attn/utils",),
    ),
]
