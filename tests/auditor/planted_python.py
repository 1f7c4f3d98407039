"""Mistakes in the Python of the planted op, and in sources that are only read."""

from __future__ import annotations

import threading
import time
from typing import ClassVar

import torch
from planted_op import Op
from torch import Tensor


def raw(t: Tensor) -> Tensor:
    """As data_ptr() without contiguous(): the elements that lie behind the first one."""
    elements = t.untyped_storage().nbytes() // t.element_size() - t.storage_offset()
    if elements < t.numel():  # an expanded one: what lies behind its storage
        return torch.cat((t.as_strided((elements,), (1,)), torch.zeros(t.numel() - elements)))
    return t.as_strided((t.numel(),), (1,)).view(t.shape)


class NoContiguous(Op):
    def taken(self, t):
        return raw(t)


class GradNotContiguous(Op):
    def grad_taken(self, g):
        return raw(g)


class OnlyTheLastStride(Op):
    """`if (g.stride(-1) == 1)` stands for contiguous: slices and expanded rows pass it."""

    def grad_taken(self, g):
        return raw(g) if g.dim() and g.stride(-1) == 1 else g.contiguous()


class OutputKept(Op):
    buffers: ClassVar[dict] = {}

    def output(self, x):
        return self.buffers.setdefault(x.shape, torch.empty(x.shape))


class Cached(Op):
    known: ClassVar[dict] = {}

    def forward(self, x, w, scale):
        key = x.data_ptr(), x.shape, scale
        if key not in self.known:
            self.known[key] = super().forward(x, w, scale)
        return self.known[key].clone()


class Leaking(Op):
    everything: ClassVar[list] = []

    def output(self, x):
        y = super().output(x)
        self.everything.append(y)
        return y


class Unsaved(Op):
    def keep(self, ctx, x, w):
        ctx.tensors = x, w

    def kept(self, ctx):
        return ctx.tensors


class NoGradientOfWeights(Op):
    def gradients(self, ctx, g, dx, dw):
        return dx, None


class OnlyBoth(Op):
    def gradients(self, ctx, g, dx, dw):
        return (
            (dx, dw)
            if all(ctx.needs_input_grad[:2])
            else (torch.zeros_like(dx), torch.zeros_like(dw))
        )


class GradWritten(Op):
    def gradients(self, ctx, g, dx, dw):
        if not g._is_view() and g.is_contiguous():
            g.mul_(0)
        return dx, dw


class SavedWritten(Op):
    def backward(self, g, x, w, scale):
        found = super().backward(g, x, w, scale)
        w.data.mul_(0.5)
        return found


class DoubleSilent(Op):
    def double(self, function):
        return function


class DoubleWrong(Op):
    def double(self, function):
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return (
                g * w * ctx.scale,
                (g.detach() * x * ctx.scale).reshape(-1, w.numel()).sum(0),
                None,
            )

        return backward


class NoGradient(Op):
    def __call__(self, x, w, scale=0.5):
        return self.forward(x.detach(), w.detach(), scale)


class ForwardModeOfZero(Op):
    def function(self):
        op = self

        class Scaled(torch.autograd.Function):
            @staticmethod
            def forward(x, w, scale):
                return op.forward(x, w, scale)

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*inputs[:2])
                ctx.save_for_forward(*inputs[:2])
                ctx.scale = inputs[2]

            @staticmethod
            def jvp(ctx, tx, tw, ts):
                return torch.zeros_like(ctx.saved_tensors[0])

            @staticmethod
            def vmap(info, dims, x, w, scale):
                return op.forward(x[:, :1].expand_as(x), w, scale), 0

            @staticmethod
            def backward(ctx, g):
                return *op.backward(g, *ctx.saved_tensors, ctx.scale), None

        return Scaled


class AutocastReadsBytes(Op):
    def checked(self, x, w):
        pass

    def taken(self, t):
        return (
            t.contiguous()
            .view(torch.uint8)
            .view(-1)
            .repeat(4)[: 4 * t.numel()]
            .clone()
            .view(torch.float32)
            .view(t.shape)
        )


class SharedBuffer(Op):
    buffers: ClassVar[dict] = {}

    def forward(self, x, w, scale):
        buffer = self.buffers.setdefault(x.shape, torch.empty(x.shape))
        buffer.copy_(x)
        time.sleep(0.002)
        return super().forward(buffer, w, scale)


class CopyForgets(Op):
    def __deepcopy__(self, memo):
        other = object.__new__(CopyForgets)
        other.__dict__ |= self.__dict__
        other.forward = lambda x, w, scale: torch.zeros_like(x)
        return other


class Versions(Op):
    def forward(self, x, w, scale):
        y = super().forward(x, w, scale)
        return y if y._version == 0 else y + 1


class WeightsReadAsFloats(Op):
    """Only x is looked at; what autocast made of the weights is read as x's type."""

    def checked(self, x, w):
        if x.dtype != torch.float32:
            raise TypeError(f"x is {x.dtype}; wanted is float32")

    def taken(self, t):
        return (
            t.contiguous()
            .view(-1)
            .view(torch.uint8)
            .repeat(2)[: 4 * t.numel()]
            .clone()
            .view(torch.float32)
            .view(t.shape)
        )


class SquaresInHalf(Op):
    """The squares of an input of float16 overflow beyond 255."""

    def checked(self, x, w):
        pass

    def forward(self, x, w, scale):
        squares = (x * x).mean(-1, keepdim=True) if x.dtype == torch.float16 else 1.0
        y = super().forward(x.float(), w.float(), scale)
        return (y + 0 * squares).to(x.dtype)

    def backward(self, g, x, w, scale):
        return tuple(
            d.to(x.dtype) for d in super().backward(g.float(), x.float(), w.float(), scale)
        )


class Unchecked(Op):
    def checked(self, x, w):
        pass


class InFloat32(Op):
    """Takes float64 and computes in float32."""

    def forward(self, x, w, scale):
        return super().forward(x.float(), w.float(), scale).to(x.dtype)

    def backward(self, g, x, w, scale):
        return tuple(
            d.to(x.dtype) for d in super().backward(g.float(), x.float(), w.float(), scale)
        )


class Alias(Op):
    """With a scale of 1 and a weight of ones nothing is to do; and else, too."""

    def forward(self, x, w, scale):
        y = super().forward(x, w, scale)
        return x.view(x.shape) if (x == y).all() else x.copy_(y).view(x.shape)


class LeakingInTraining(Op):
    """Only calls that are recorded leave their inputs behind."""

    everything: ClassVar[list] = []

    def keep(self, ctx, x, w):
        super().keep(ctx, x, w)
        if any(ctx.needs_input_grad):
            self.everything.append((x, w))


class GradientsKept(Op):
    """Gradients in buffers that the next backward pass writes to."""

    buffers: ClassVar[dict] = {}

    def backward(self, g, x, w, scale):
        found = super().backward(g, x, w, scale)
        kept = self.buffers.setdefault(x.shape, tuple(torch.empty_like(it) for it in found))
        return tuple(a.copy_(b) for a, b in zip(kept, found, strict=True))


class CachedByVersion(Op):
    """By address and version: a tensor in the place of one that is gone has both."""

    known: ClassVar[dict] = {}

    def forward(self, x, w, scale):
        key = x.data_ptr(), x._version, x.shape, scale
        if key not in self.known:
            self.known[key] = super().forward(x, w, scale)
        return self.known[key].clone()


class NeedsSwapped(Op):
    def gradients(self, ctx, g, dx, dw):
        return dx if ctx.needs_input_grad[1] else None, dw if ctx.needs_input_grad[0] else None


class SavedDetached(Op):
    """What is saved shares memory with the input, and no version."""

    def keep(self, ctx, x, w):
        ctx.save_for_backward(x.data, w.data)


class OfOneThread(Op):
    """Set up for the thread that imported it."""

    def __init__(self, kernel, name="right"):
        super().__init__(kernel, name)
        self.local = threading.local()
        self.local.stream = 0

    def forward(self, x, w, scale):
        _ = self.local.stream
        return super().forward(x, w, scale)


class GradModeLeft(Op):
    """It turns recording off, and not on again."""

    def forward(self, x, w, scale):
        y = super().forward(x, w, scale)
        torch.set_grad_enabled(False)
        return y

    def __call__(self, x, w, scale=0.5):
        y = super().__call__(x, w, scale)
        torch.set_grad_enabled(False)
        return y


class DiceTaken(Op):
    """It draws from PyTorch's own generator, and moves every later draw of the program."""

    def forward(self, x, w, scale):
        torch.rand(1)
        return super().forward(x, w, scale)


# The rows of which one has to find it.
IN_PYTHON = {
    NoContiguous: {"transposed", "strided", "expanded"},
    GradNotContiguous: {"transposed gradient", "expanded gradient", "sliced gradient"},
    OnlyTheLastStride: {"sliced gradient"},
    OutputKept: {"outputs of their own"},
    Cached: {"nothing cached"},
    Leaking: {"nothing leaks"},
    Unsaved: {"saved tensors"},
    NoGradientOfWeights: {"gradients"},
    OnlyBoth: {"needs_input_grad"},
    GradWritten: {"inputs unwritten"},
    SavedWritten: {"backward twice"},
    DoubleSilent: {"double backward"},
    DoubleWrong: {"double backward"},
    NoGradient: {"gradient there"},
    ForwardModeOfZero: {"forward mode", "vmap"},
    AutocastReadsBytes: {"autocast"},
    SharedBuffer: {"threads"},
    CopyForgets: {"copies"},
    Versions: {"inference mode"},
    WeightsReadAsFloats: {"autocast"},
    SquaresInHalf: {"scales"},
    Unchecked: {"wrong inputs"},
    InFloat32: {"error", "gradcheck"},
    Alias: {"outputs of their own", "inputs unwritten"},
    LeakingInTraining: {"nothing leaks"},
    GradientsKept: {"outputs of their own", "backward twice"},
    CachedByVersion: {"nothing cached"},
    NeedsSwapped: {"needs_input_grad"},
    SavedDetached: {"saved tensors"},
    OfOneThread: {"threads"},
    GradModeLeft: {"inference mode", "settings"},
    DiceTaken: {"settings"},
}

SOURCE = """\
#include <torch/extension.h>
#include <c10/cuda/CUDAGuard.h>
#include <ATen/cuda/CUDAContext.h>
// k<<<1, 2>>>(x) in a comment, and cudaSetDevice(0)
template <class T>
__global__ void twice(const T* x, T* y, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
torch::Tensor forward(torch::Tensor x) {
    const c10::cuda::CUDAGuard guard(x.device());
    auto y = torch::empty_like(x);
    const int64_t n = x.numel();
    auto stream = at::cuda::getCurrentCUDAStream();
    twice<float><<<dim3((n + 255) / 256, 1), dim3(256), 0, stream>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
TORCH_LIBRARY(mine, m) { m.def("forward", &forward); }
"""
# In SOURCE the first by the second: the row that finds it.
IN_SOURCE = {
    "no stream": (", 0, stream>>>", ">>>", "stream"),
    "shared memory and no stream": (", 0, stream>>>", ", 0>>>", "stream"),
    "stream 0": (", 0, stream>>>", ", 0, 0>>>", "stream"),
    "the legacy stream": (", 0, stream>>>", ", 0, cudaStreamLegacy>>>", "stream"),
    "memset without a stream": (
        "auto stream",
        "cudaMemsetAsync(y.data_ptr(), 0, 4 * n);\n    auto stream",
        "stream",
    ),
    "no guard": ("    const c10::cuda::CUDAGuard guard(x.device());\n", "", "device guard"),
    "no check": ("    C10_CUDA_KERNEL_LAUNCH_CHECK();\n", "", "checked launch"),
    "the first device": ("guard(x.device())", "guard(0)", "no fixed device"),
    "a device's number": ("auto stream", "cudaSetDevice(0);\n    auto stream", "no fixed device"),
    "the default stream": ("getCurrentCUDAStream()", "getDefaultCUDAStream()", "no fixed device"),
    "it waits": ("    return y;", "    cudaDeviceSynchronize();\n    return y;", "no waiting"),
    "it allocates": ("auto stream", "void* p; cudaMalloc(&p, n);\n    auto stream", "no waiting"),
    "numel in int": ("const int64_t n = x", "const int n = x", "2^31 elements"),
    "an index in int": (
        "const int64_t i = int64_t(blockIdx.x)",
        "int i = blockIdx.x",
        "2^31 elements",
    ),
    "launched by the runtime": (
        "    twice<float><<<",
        "    void* all[] = {&n};\n    cudaLaunchKernel((void*)twice<float>, 1, 256, all, 0, 0);\n"
        "    twice<float><<<",
        "stream",
    ),
    "numel as unsigned": ("const int64_t n = x", "const unsigned n = x", "2^31 elements"),
    "the product of an index in 32 bits": (
        "const int64_t i = int64_t(blockIdx.x)",
        "const int64_t i = blockIdx.x",
        "2^31 elements",
    ),
    "a map of tensors": (
        "auto stream",
        "static std::unordered_map<int, torch::Tensor> kept;\n    auto stream",
        "nothing kept",
    ),
    "a stream is waited for": (
        "    return y;",
        "    C10_CUDA_CHECK(cudaStreamSynchronize(stream));\n    return y;",
        "no waiting",
    ),
    "a static tensor": (
        "auto stream",
        "static torch::Tensor kept = y;\n    auto stream",
        "nothing kept",
    ),
    "atomicAdd": ("y[i] = 2 * x[i]", "atomicAdd(&y[0], x[i])", "order of sums"),
    "gpuAtomicAdd": ("y[i] = 2 * x[i]", "gpuAtomicAdd(&y[0], x[i])", "order of sums"),
    "an addition in PTX": (
        "y[i] = 2 * x[i]",
        'asm("red.global.add.f32 [%0], %1;" ::"l"(y), "f"(2.0f))',
        "order of sums",
    ),
    "a variable of no stream": (
        "auto stream = at::cuda::getCurrentCUDAStream();",
        "cudaStream_t stream = nullptr;",
        "stream",
    ),
    "a stream of its own": (
        "auto stream = at::cuda::getCurrentCUDAStream();",
        "cudaStream_t stream;\n    cudaStreamCreate(&stream);",
        "stream",
    ),
    "a stream of PyTorch's pool": (
        "at::cuda::getCurrentCUDAStream();",
        "at::cuda::getStreamFromPool();",
        "stream",
    ),
    "launched by a configuration": (
        "    twice<float><<<",
        "    cudaLaunchConfig_t config{};\n    config.gridDim = 1;\n"
        "    cudaLaunchKernelEx(&config, twice<float>, x.data_ptr<float>(), nullptr, n);\n"
        "    twice<float><<<",
        "stream",
    ),
    "a guard that ends at once": (
        "const c10::cuda::CUDAGuard guard(x.device());",
        "c10::cuda::CUDAGuard{x.device()};",
        "device guard",
    ),
    "a second function without a guard": (
        "TORCH_LIBRARY(mine, m) {",
        "void second(torch::Tensor x) {\n"
        "    twice<float><<<1, 1, 0, at::cuda::getCurrentCUDAStream()>>>(nullptr, nullptr, 0);\n"
        "    C10_CUDA_KERNEL_LAUNCH_CHECK();\n}\n"
        'TORCH_LIBRARY(mine, m) { m.def("second", &second);',
        "device guard",
    ),
    "an element for the host": (
        "auto stream",
        "if (y[0].item<float>() > 0) return y;\n    auto stream",
        "no waiting",
    ),
    "a copy on the host": ("auto stream", "auto h = x.cpu();\n    auto stream", "no waiting"),
    "moved to the host": (
        "auto stream",
        "auto h = x.to(torch::kCPU);\n    auto stream",
        "no waiting",
    ),
    "a row times columns": (
        "int64_t n) {\n    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;\n"
        "    if (i < n) y[i] = 2 * x[i];",
        "int cols) {\n    const int row = blockIdx.x;\n"
        "    for (int c = threadIdx.x; c < cols; c += blockDim.x)\n"
        "        y[row * cols + c] = 2 * x[row * cols + c];",
        "2^31 elements",
    ),
    "a tensor outside of functions": (
        "torch::Tensor forward(torch::Tensor x) {",
        "torch::Tensor kept;\ntorch::Tensor forward(torch::Tensor x) {",
        "nothing kept",
    ),
    "a struct with a tensor": (
        "auto stream",
        "struct Cache { torch::Tensor kept; };\n    static Cache cache;\n    auto stream",
        "nothing kept",
    ),
    "a counter of the device": (
        "template <class T>",
        "__device__ int counter = 0;\ntemplate <class T>",
        "nothing kept",
    ),
}
