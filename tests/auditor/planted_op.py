"""A small op that is right, y = x * w * scale, and copies of it each with one mistake.

The copies of the kernels stand in one source, so that all of them are one build.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import torch

import jitload

KERNELS = """
__global__ void forward_k(const float* x, const float* w, float* y, int64_t n, int64_t cols,
                          float scale) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i] * w[i % cols] * scale;
        y[i] = v;
    }
}
__global__ void backward_k(const float* g, const float* w, float* dx, int64_t n, int64_t cols,
                           float scale) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) dx[i] = g[i] * w[i % cols] * scale;
}
__global__ void weights_k(const float* g, const float* x, float* dw, int64_t rows, int64_t cols,
                          float scale) {
    __shared__ float part[64];
    int64_t c = blockIdx.x;
    float sum = 0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x)
        sum += g[r * cols + c] * x[r * cols + c];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 32; half; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) dw[c] = part[0] * scale;
}
extern "C" cudaError_t forward_NAME(int64_t x, int64_t w, int64_t y, int64_t rows, int64_t cols,
                                    double scale, cudaStream_t stream) {
    int64_t n = rows * cols;
    if (n == 0) return cudaSuccess;
    int64_t blocks = (n + 255) / 256;
    forward_k<<<blocks, 256, 0, stream>>>((const float*)x, (const float*)w, (float*)y, n, cols,
                                          scale);
    return cudaGetLastError();
}
extern "C" cudaError_t backward_NAME(int64_t g, int64_t x, int64_t w, int64_t dx, int64_t dw,
                                     int64_t rows, int64_t cols, double scale,
                                     cudaStream_t stream) {
    int64_t n = rows * cols;
    if (cols == 0) return cudaSuccess;
    int64_t blocks = (n + 255) / 256;
    if (n)
        backward_k<<<blocks, 256, 0, stream>>>((const float*)g, (const float*)w, (float*)dx, n,
                                               cols, scale);
    weights_k<<<cols, 64, 0, stream>>>((const float*)g, (const float*)x, (float*)dw, rows, cols,
                                       scale);
    return cudaGetLastError();
}
"""

_FORWARD = "if (i < n) {\n        float v"
_STORE = "y[i] = v;"
# What is put in the place of what, and the rows of which one has to find it.
IN_KERNELS: dict[str, tuple[list[tuple[str, str]], set[str]]] = {
    "tail_lost": (
        [(_FORWARD, "if (i < n / 4 * 4) {\n        float v")],
        {"shapes", "fresh memory"},
    ),
    "one_too_many": ([(_FORWARD, "if (i <= n) {\n        float v")], {"bounds", "shapes"}),
    "no_bound": ([(_FORWARD, "{\n        float v")], {"bounds", "shapes", "error"}),
    "zeros": ([(_STORE, "y[i] = 0;")], {"error"}),
    "constant": ([(_STORE, "y[i] = 0.1f;")], {"error"}),
    "factor": ([(_STORE, "y[i] = v * 0.999f;")], {"error"}),
    "one_block": (
        [("int64_t blocks = (n + 255) / 256;\n    forward", "int64_t blocks = 1;\n    forward")],
        {"shapes", "error"},
    ),
    "grid_in_y": (
        [
            (
                "int64_t(blockIdx.x) * blockDim.x + threadIdx.x;\n    if (i < n) {",
                "int64_t(blockIdx.y) * cols + threadIdx.x;\n"
                "    if (threadIdx.x < cols)"
                " for (; i < (blockIdx.y + 1) * cols; i += blockDim.x) {",
            ),
            ("forward_k<<<blocks, 256", "forward_k<<<dim3(1, rows), 256"),
        ],
        {"beyond a grid"},
    ),
    "empty": ([("if (n == 0) return cudaSuccess;", "")], {"empty"}),
    "nan_dropped": ([(_STORE, "y[i] = fmaxf(v, -3e38f);")], {"special values"}),
    "infinity_clamped": (
        [(_STORE, "y[i] = v != v ? v : fminf(fmaxf(v, -3e38f), 3e38f);")],
        {"special values"},
    ),
    "flushed": ([(_STORE, "y[i] = fabsf(v) < 1e-37f ? 0 : v;")], {"subnormal"}),
    "overflow": ([("float v = x[i] *", "float v = x[i] * 1e35f / 1e35f *")], {"scales"}),
    "cancelled": (
        [("float v = x[i] *", "float v = ((x[i] + 4096.0f) - 4096.0f) *")],
        {"error", "scales"},
    ),
    "half": ([("float v = x[i] *", "float v = __half2float(__float2half(x[i])) *")], {"error"}),
    "input_written": ([(_STORE, "y[i] = v; const_cast<float*>(x)[i] = 0;")], {"inputs unwritten"}),
    "vectors": (
        [
            (
                "if (i < n) {\n        float v",
                "if (cols % 4 == 0) { if (i < n / 4) { float4 a = ((const float4*)x)[i];"
                " for (int k = 0; k < 4; ++k) y[4 * i + k] = (&a.x)[k] * w[(4 * i + k) % cols]"
                " * scale; } } else if (i < n) {\n        float v",
            ),
        ],
        {"misaligned"},
    ),
    "int_scale": (
        [
            (
                "double scale, cudaStream_t stream) {\n    int64_t n = rows * cols;\n"
                "    if (n == 0)",
                "double given, cudaStream_t stream) {\n    int scale = given;\n"
                "    int64_t n = rows * cols;\n    if (n == 0)",
            )
        ],
        {"parameters"},
    ),
    "gradient_factor": ([("dx[i] = g[i] *", "dx[i] = 1.01f * g[i] *")], {"gradients", "error"}),
    "gradient_sign": ([("dw[c] = part[0]", "dw[c] = -part[0]")], {"gradients", "error"}),
    "no_barrier": (
        [("part[threadIdx.x] = sum;\n    __syncthreads();", "part[threadIdx.x] = sum;")],
        {"races"},
    ),
    "unset_shared": (
        [
            ("__shared__ float part[64];", "__shared__ float part[128];"),
            ("int half = 32;", "int half = 64;"),
        ],
        {"uninitialised"},
    ),
    "barrier_skipped": (
        [
            (
                "    part[threadIdx.x] = sum;\n    __syncthreads();",
                "    part[threadIdx.x] = sum;\n    if (threadIdx.x < 32) __syncthreads();",
            )
        ],
        {"barriers and launches", "races"},
    ),
    "added_to_garbage": (
        [("dw[c] = part[0] * scale", "dw[c] += part[0] * scale")],
        {"fresh memory", "uninitialised"},
    ),
    "rows_of_64": (
        [("r < rows; r += blockDim.x", "r < rows && r < 64; r += blockDim.x")],
        {"shapes"},
    ),
    "rows_of_16_bits": (
        [("r < rows; r += blockDim.x", "r < (rows & 0xffff); r += blockDim.x")],
        {"beyond a grid"},
    ),
    "race_of_many_rows": (
        [
            (
                "part[threadIdx.x] = sum;\n    __syncthreads();",
                "part[threadIdx.x] = sum;\n    if (rows <= 64) __syncthreads();",
            )
        ],
        {"races"},
    ),
    "weights_in_vectors": (
        [
            (
                "float v = x[i] * w[i % cols] * scale;",
                "float4 four = {};\n"
                "        if (cols % 4 == 0) four = ((const float4*)w)[i % cols / 4];\n"
                "        float v = x[i] * (cols % 4 ? w[i % cols] : (&four.x)[i % 4]) * scale;",
            )
        ],
        {"misaligned"},
    ),
    "order_of_arrival": (
        [
            (
                "part[threadIdx.x] = sum;",
                "if (threadIdx.x == 0) part[0] = 0;\n"
                "    __syncthreads();\n"
                "    for (unsigned was = 1, now = 0; was != now;) {\n"
                "        was = now;\n"
                "        float next = __uint_as_float(was) + sum;\n"
                "        now = atomicCAS((unsigned*)part, was, __float_as_uint(next));\n"
                "    }",
            ),
            ("for (int half = 32; half;", "for (int half = 0; half;"),
        ],
        {"order of sums"},
    ),
    "nan_of_weights_dropped": (
        [("float v = x[i] * w[i % cols] *", "float v = x[i] * fmaxf(w[i % cols], -3e38f) *")],
        {"special values"},
    ),
    "skipped_where_zero": (
        [("if (threadIdx.x == 0) dw[c]", "if (threadIdx.x == 0 && part[0] != 0) dw[c]")],
        {"fresh memory"},
    ),
    "gradient_overflows": (
        [
            ("sum += g[r * cols + c] * x", "sum += g[r * cols + c] * 1e35f * x"),
            ("dw[c] = part[0] * scale", "dw[c] = part[0] / 1e35f * scale"),
        ],
        {"scales"},
    ),
}


@cache
def kernels(folder: Path) -> jitload.Kernel:
    """Every copy, in one build: `right` is without a mistake."""
    parts = [_copy("right", [])]
    parts += [_copy(name, changes) for name, (changes, _) in IN_KERNELS.items()]
    path = folder / "planted.cu"
    path.write_text("#include <cstdint>\n#include <cuda_fp16.h>\n" + "".join(parts))
    return jitload.load(path, target="cpu", flags=["-O1"])


def _copy(name: str, changes: list[tuple[str, str]]) -> str:
    text = KERNELS
    for old, new in changes:
        assert text.count(old) == 1, (name, old, text.count(old))
        text = text.replace(old, new)
    return re.sub(r"\b(forward|backward|weights)_k\b", rf"\1_kernel_{name}", text).replace(
        "NAME", name
    )


def reference(x, w, scale=0.5):
    return x * w * scale


class Op:
    """y = x * w * scale, by the kernels of one copy. What it does in Python a plant may replace."""

    def __init__(self, kernel: jitload.Kernel, name: str = "right") -> None:
        self._forward = getattr(kernel, f"forward_{name}")
        self._backward = getattr(kernel, f"backward_{name}")
        self.__name__ = name

    # ---- what plants replace

    def taken(self, t: torch.Tensor) -> torch.Tensor:
        """An input as the kernel takes it."""
        return t.contiguous()

    def grad_taken(self, g: torch.Tensor) -> torch.Tensor:
        return g.contiguous()

    def checked(self, x: torch.Tensor, w: torch.Tensor) -> None:
        if x.dtype != torch.float32 or w.dtype != torch.float32:
            raise TypeError(f"x is {x.dtype}, w is {w.dtype}; wanted is float32")
        if w.dim() != 1 or not x.dim() or x.shape[-1] != w.shape[0]:
            raise ValueError(f"w is {list(w.shape)}, x is {list(x.shape)}")

    def output(self, x: torch.Tensor) -> torch.Tensor:
        return torch.empty(x.shape, dtype=x.dtype)

    def keep(self, ctx, x: torch.Tensor, w: torch.Tensor) -> None:
        ctx.save_for_backward(x, w)

    def kept(self, ctx) -> tuple[torch.Tensor, torch.Tensor]:
        return ctx.saved_tensors

    def gradients(self, ctx, g: torch.Tensor, dx: torch.Tensor, dw: torch.Tensor) -> tuple:
        return dx if ctx.needs_input_grad[0] else None, dw if ctx.needs_input_grad[1] else None

    def double(self, function):
        return torch.autograd.function.once_differentiable(function)

    # ---- the op

    def forward(self, x: torch.Tensor, w: torch.Tensor, scale: float) -> torch.Tensor:
        self.checked(x, w)
        x, w = self.taken(x), self.taken(w)
        y = self.output(x)
        cols = w.numel()
        rows = x.numel() // cols if cols else 0
        self._forward(x.data_ptr(), w.data_ptr(), y.data_ptr(), rows, cols, scale)
        return y

    def backward(self, g, x, w, scale) -> tuple[torch.Tensor, torch.Tensor]:
        g, x, w = self.grad_taken(g), self.taken(x), self.taken(w)
        dx, dw = torch.empty(x.shape), torch.empty(w.shape)
        cols = w.numel()
        rows = x.numel() // cols if cols else 0
        addresses = (it.data_ptr() for it in (g, x, w, dx, dw))
        self._backward(*addresses, rows, cols, scale)
        return dx, dw

    def __call__(self, x: torch.Tensor, w: torch.Tensor, scale: float = 0.5) -> torch.Tensor:
        return self.function().apply(x, w, scale)

    def function(self) -> type[torch.autograd.Function]:
        op = self

        class Scaled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w, scale):
                op.keep(ctx, x, w)
                ctx.scale = scale
                return op.forward(x, w, scale)

            @staticmethod
            def backward(ctx, g):
                dx, dw = op.backward(g, *op.kept(ctx), ctx.scale)
                return *op.gradients(ctx, g, dx, dw), None

        Scaled.backward = staticmethod(op.double(Scaled.__dict__["backward"].__func__))
        return Scaled
