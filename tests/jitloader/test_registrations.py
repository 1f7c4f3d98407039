"""Operators registered under fixed names, and for CUDA: what other people's extensions do."""

import pytest
import torch
from jit_cases import load, write

import jitload

TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]

# Written for CUDA by the stable ABI, with implementations for both: the CPU's gives zeros.
PLUS = """
#include <cuda_runtime.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>
using torch::stable::Tensor;

__global__ void plus_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + ADDED;
}

Tensor plus_cuda(const Tensor& x) {
    STD_TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    STD_TORCH_CHECK(x.device().is_cuda() && x.get_device() >= 0 && x.device().index() >= 0);
    torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
    Tensor y = torch::stable::empty_like(x);
    int n = int(x.numel());
    plus_kernel<<<(n + 127) / 128, 128>>>((const float*)x.const_data_ptr(),
                                          (float*)y.mutable_data_ptr(), n);
    return y;
}
Tensor zeros(const Tensor& x) {
    Tensor y = torch::stable::empty_like(x);
    return torch::stable::zero_(y);
}

STABLE_TORCH_LIBRARY(NAMESPACE, m) {
    m.def("plus(Tensor x) -> Tensor");
    m.def("zeros(Tensor x) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(NAMESPACE, CPU, m) {
    m.impl("plus", TORCH_BOX(&zeros));
    m.impl("zeros", TORCH_BOX(&zeros));
}
STABLE_TORCH_LIBRARY_IMPL(NAMESPACE, CUDA, m) { m.impl("plus", TORCH_BOX(&plus_cuda)); }
"""


def plus(name: str, added: str = "1", namespace: str = ""):
    text = PLUS.replace("NAMESPACE", namespace or name).replace("ADDED", added)
    return write(f"{name}.cu", text)


@pytest.mark.parametrize("target", TARGETS)
def test_a_fixed_name_is_made_the_builds_own_and_leads_to_the_newest(target, in_scratch):
    name = f"fixed_{target}"
    kernel = jitload.load(plus(name), target=target)
    x = torch.arange(5.0, device=target)
    ops = getattr(torch.ops, name)
    torch.testing.assert_close(kernel.plus(x), x + 1)
    torch.testing.assert_close(ops.plus(x), x + 1)

    @torch.library.register_fake(f"{name}::plus")
    def _(x):
        return torch.empty_like(x)

    torch.library.register_autograd(f"{name}::plus", lambda ctx, grad: 7 * grad)
    y = torch.ones(3, device=target, requires_grad=True)
    torch.library.opcheck(ops.plus.default, (y,))
    compiled = torch.compile(lambda x: 2 * ops.plus(x), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), 2 * x + 2)

    plus(name, added="10")
    assert kernel.reload()
    torch.testing.assert_close(kernel.plus(x), x + 10)
    torch.testing.assert_close(ops.plus(x), x + 10)
    torch.testing.assert_close(compiled(x), 2 * x + 20)
    torch.testing.assert_close(kernel.at(1).plus(x), x + 1)
    (gradient,) = torch.autograd.grad(ops.plus(y).sum(), y)
    assert gradient.tolist() == [7, 7, 7]

    path = plus(name, added="x")  # no number: the build fails, and so does every call
    path.write_text(path.read_text().replace("x[i] + x", "x[i] + "))
    with pytest.raises(jitload.CompileError):
        kernel.reload()
    with pytest.raises(jitload.CompileError):
        ops.plus(x)


def test_an_edited_schema_is_that_of_the_fixed_name_too(in_scratch):
    kernel = load(plus("schema"))
    x = torch.arange(5.0)
    torch.testing.assert_close(torch.ops.schema.plus(x), x + 1)
    text = PLUS.replace("NAMESPACE", "schema").replace("ADDED", "float(by)")
    for function in ("zeros", "plus_cuda"):
        text = text.replace(
            f"{function}(const Tensor& x)", f"{function}(const Tensor& x, double by)"
        )
    text = text.replace("(Tensor x)", "(Tensor x, float by)").replace(
        "float* y, int n", "float* y, int n, double by"
    )
    write("schema.cu", text.replace("mutable_data_ptr(), n)", "mutable_data_ptr(), n, by)"))
    assert kernel.reload()
    torch.testing.assert_close(torch.ops.schema.plus(x, 3.0), x + 3)
    with pytest.raises(RuntimeError, match="by"):
        torch.ops.schema.plus(x)


def test_on_the_cpu_the_implementation_for_cuda_runs_and_the_handle_says_so(in_scratch, capfd):
    kernel = load(plus("both"))
    x = torch.ones(3)
    assert kernel.plus(x).tolist() == [2, 2, 2]
    assert kernel.zeros(x).tolist() == [0, 0, 0]  # of which there is one implementation
    (note,) = kernel.notes
    assert note.startswith("plus: the implementation for CUDA runs")
    assert f"both: {note}" in capfd.readouterr().err


def test_a_namespace_of_another_library_stays_its_own(in_scratch):
    library = torch.library.Library("taken", "DEF")
    library.define("plus(Tensor x) -> Tensor")
    library.impl("plus", lambda x: -x, "CPU")
    kernel = load(plus("taken"))
    x = torch.arange(5.0)
    torch.testing.assert_close(kernel.plus(x), x + 1)
    torch.testing.assert_close(torch.ops.taken.plus(x), -x)
    torch.testing.assert_close(torch.ops.taken.zeros(x), 0 * x)  # that name was free


def test_two_kernels_under_one_name_the_newest_answers(in_scratch):
    x = torch.zeros(2)
    first, second = (load(plus(f"one_{n}", str(n), namespace="shared")) for n in (1, 2))
    assert torch.ops.shared.plus(x).tolist() == [2, 2]
    assert (first.plus(x) + second.plus(x)).tolist() == [3, 3]


def test_namespaces_of_pytorchs_own_are_refused_and_so_are_two_operators_of_one_name(in_scratch):
    write("own.cpp", "// TORCH_LIBRARY(commented, m)\n  TORCH_LIBRARY_FRAGMENT(aten, m) {}\n")
    with pytest.raises(jitload.CompileError, match="PyTorch's own namespace 'aten'") as caught:
        load("own.cpp")
    assert (caught.value.line, caught.value.column) == (2, 26)
    assert "TORCH_EXTENSION_NAME" in caught.value.hint
    for name in ("a", "b"):
        write(f"{name}.cpp", f'TORCH_LIBRARY({name}, m) {{ m.def("f(Tensor x) -> Tensor"); }}')
    with pytest.raises(jitload.CompileError, match=r"b\.cpp:1:15: .*two operators 'f', of 'a' and"):
        load("a.cpp", "b.cpp")


def test_operators_defined_under_one_name_and_implemented_under_another_are_refused(in_scratch):
    write(
        "torn.cpp",
        'TORCH_LIBRARY(mine, m) { m.def("f(Tensor x) -> Tensor"); }\n'
        'TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CPU, m) { m.impl("f", &f); }\n',
    )
    with pytest.raises(jitload.CompileError, match=r"torn\.cpp:2:20: .*implements 'f' under"):
        load("torn.cpp")
