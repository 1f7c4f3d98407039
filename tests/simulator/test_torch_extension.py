"""An extension that includes PyTorch's headers for CUDA, on CPU tensors; and on a GPU's."""

from pathlib import Path

import pytest
import torch

import jitload

SOURCES = Path(__file__).parent / "kernels"
TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]

pytestmark = [pytest.mark.slow, pytest.mark.longest]  # PyTorch's headers take most of a minute


@pytest.fixture(scope="module", params=TARGETS)
def extension(request, cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JITLOAD_CACHE", str(cache))
        sources = [SOURCES / f"torch_extension.{suffix}" for suffix in ("cpp", "cu")]
        return jitload.load(*sources, target=request.param, flags=["-O0", "-Xptxas", "-O0"])


def test_accessors_and_dispatch(extension):
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = torch.arange(70.0 * 9, device=extension.target).reshape(70, 9).remainder(7).to(dtype)
        torch.testing.assert_close(extension.row_sums(x), x.double().sum(1).to(dtype))
    with pytest.raises(RuntimeError, match="not implemented for 'Int'"):
        extension.row_sums(torch.ones(2, 2, dtype=torch.int32, device=extension.target))


def test_checks_for_cuda_tensors(extension):
    x = torch.ones(3, 4, device=extension.target)
    with pytest.raises(RuntimeError, match="x must be contiguous"):
        extension.row_sums(x.t())
    with pytest.raises(RuntimeError, match="x must be a CUDA tensor"):
        extension.row_sums(x.to("meta"))
    assert extension.branch(x) == "cuda"
    assert extension.branch(x.to("meta")) == "other"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_of_pytorch_and_of_cuda_become_each_other(extension, dtype):
    x = torch.tensor([0.5, -3.0, torch.inf, 65504.0], device=extension.target).to(dtype)
    assert torch.equal(extension.doubled(x), 2 * x)


def test_a_gradient_of_its_own(extension):
    x = torch.rand(5, 3, dtype=torch.float64, device=extension.target, requires_grad=True)
    assert torch.autograd.gradcheck(extension.squares, x)


def test_atomics_of_every_type(extension):
    x = torch.arange(100, device=extension.target).remainder(7)
    assert extension.histogram(x, 7).tolist() == [7 * n for n in torch.bincount(x).tolist()]


def test_random_numbers_follow_pytorchs_generator(extension):
    x = torch.ones(10_000, device=extension.target)
    torch.manual_seed(1)
    first, second = extension.dropout(x, 0.25), extension.dropout(x, 0.25)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(extension.dropout(x, 0.25), first)
    assert torch.equal(extension.dropout(x, 0.25), second)
    assert 0.73 < (first > 0).double().mean() < 0.77
    generators = [torch.Generator(extension.target).manual_seed(seed) for seed in (5, 5, 6)]
    same, again, other = (extension.dropout(x, 0.25, generator) for generator in generators)
    assert torch.equal(same, again)
    assert not torch.equal(same, other)


def test_a_refused_launch_is_an_exception(extension):
    extension.refused(1024)
    with pytest.raises(RuntimeError, match=r"CUDA error: .*[Ii]nvalid"):
        extension.refused(1025)
    extension.refused(1)


def test_what_pytorch_says_of_the_device(extension):
    assert extension.facts(torch.ones(2, device=extension.target)) == [
        *("the guard's device", "a device", "warps of 32", "blocks of 1024", "mathematics"),
        *("the guard's stream", "its end", "events", "memory", "a device by its name"),
    ]


PRODUCT = """
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

// Of row-major a [m, k] and b [k, n], which are column-major b^T a^T.
at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
    TORCH_CHECK(a.is_cuda() && b.is_cuda(), "a and b must be CUDA tensors");
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = at::empty({m, n}, a.options());
    const float one = 1, zero = 0;
    TORCH_CUDABLAS_CHECK(cublasSgemm(at::cuda::getCurrentCUDABlasHandle(), CUBLAS_OP_N,
                                     CUBLAS_OP_N, n, m, k, &one, b.data_ptr<float>(), n,
                                     a.data_ptr<float>(), k, &zero, c.data_ptr<float>(), n));
    return c;
}

TORCH_LIBRARY(products_of_tests, m) { m.def("product(Tensor a, Tensor b) -> Tensor"); }
TORCH_LIBRARY_IMPL(products_of_tests, CUDA, m) { m.impl("product", &product); }
"""


@pytest.mark.parametrize("target", TARGETS)
def test_cublas_by_pytorchs_handle(target, in_scratch):
    Path("product.cu").write_text(PRODUCT)
    jitload.load("product.cu", target=target, flags=["-O0", "-lcublas"])
    a, b = torch.randn(5, 7, device=target), torch.randn(7, 3, device=target)
    torch.testing.assert_close(torch.ops.products_of_tests.product(a, b), a @ b)
