"""What is asked of CUDA tensors in an extension, where the tensors are the CPU's."""

import pytest

from simulator.rewrite import Unsupported, rewrite


def rewritten(text: str) -> str:
    return rewrite(text, "x.cpp").partition('#line 1 "x.cpp"\n')[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(!x.is_cuda());", "f(!::simulator::is_cuda(x));"),
        ("a.b(c)[d]->is_cuda()", "::simulator::is_cuda(*a.b(c)[d])"),
        ("return x.type().is_cuda();", "return ::simulator::is_cuda(x.type());"),
        ("::at::f<T<U>>(x).is_cuda()", "::simulator::is_cuda(::at::f<T<U>>(x))"),
        ("(p ? x : y).is_cuda()", "::simulator::is_cuda((p ? x : y))"),
        ("#define C(x) (x).is_cuda()", "#define C(x) ::simulator::is_cuda((x))"),
        (
            "#define C(x) \\\n    CHECK((x).is_cuda(), #x)",
            "#define C(x) \\\n    CHECK(::simulator::is_cuda((x)), #x)",
        ),
        ("Guard g(x.get_device());", "Guard g(::simulator::get_device(x));"),
        ("x.get_device_index()", "::simulator::get_device_index(x)"),
        (
            "using torch::stable::accelerator::DeviceGuard;",
            "using torch::stable::accelerator::cpu::DeviceGuard;",
        ),
        ("at::checkAllSameGPU(c, {x, y});", "::simulator::same_gpu(c, {x, y});"),
        ("checkSameGPU(c, x, y);", "::simulator::same_gpu(c, x, y);"),
        ("x.device().index()", "::simulator::device_index(x.device())"),
        ("x.index({0})", "x.index({0})"),
        ("bool is_cuda() const;", "bool is_cuda() const;"),
        ('f("x.is_cuda()"); // x.is_cuda()', 'f("x.is_cuda()"); // x.is_cuda()'),
        ("x.to(torch::kCUDA)", "x.to(torch::kCPU)"),
        ("d == c10::DeviceType::CUDA", "d == c10::DeviceType::CPU"),
        ("d == at::Device::Type::CUDA", "d == at::Device::Type::CPU"),
        ("c10::DispatchKey::AutogradCUDA", "c10::DispatchKey::AutogradCPU"),
        ("enum { kCPU, kCUDA };", "enum { kCPU, kCUDA };"),
        ("using namespace at; f(kCUDA);", "using namespace at; f(kCPU);"),
        ('torch::Device d("cuda:0");', 'torch::Device d("cpu");'),
        ('o.device("cuda") + "cuda"', 'o.device("cpu") + "cuda"'),
        ("x = x.cuda();", "x = ::simulator::cuda(x);"),
        ("p->cuda().is_cuda()", "::simulator::is_cuda(::simulator::cuda(*p))"),
        ("cuda();", "cuda();"),
        ("TORCH_LIBRARY_IMPL(ops, CUDA, m) {}", "TORCH_LIBRARY_IMPL(ops, CPU, m) {}"),
        (
            "STABLE_TORCH_LIBRARY_IMPL(ops, AutogradCUDA, m) {}",
            "STABLE_TORCH_LIBRARY_IMPL(ops, AutogradCPU, m) {}",
        ),
        # Of two cases the one for CUDA is taken.
        (
            "switch (d) { case at::kCPU: f(); break; case at::kCUDA: g(); }",
            "switch (d) { case at::kCUDA: f(); break; case at::kCPU: g(); }",
        ),
    ],
)
def test_cuda_means_the_cpu_in_what_an_extension_says_of_its_tensors(text, expected):
    assert rewritten(text) == expected


@pytest.mark.parametrize("asked", ["x.type()", "f(x)->type( )"])
def test_types_are_dispatched_by_the_older_form(asked):
    call = f'AT_DISPATCH_FLOATING_TYPES_AND(at::kHalf, {asked}, "f", ([&] {{ y.type(); }}));'
    assert call.replace("type", "scalar_type", 1) in rewrite(call, "x.cu")


def test_what_the_edits_call_is_declared_before():
    assert rewrite("x.is_cuda()", "x.h").startswith("#include <simulator/torch_cuda.h>\n#line 1 ")
    assert rewrite("x.size(0)", "x.h").startswith("#line 1 ")
    blas = "#include <ATen/cuda/CUDAContext.h>\ncublasSgemm();"
    assert "#include <simulator/torch_cublas.h>\n" in rewrite(blas, "x.h").partition("#line")[0]
    assert rewrite("getCurrentCUDAStream();", "x.h").startswith("#line 1 ")


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("ATen/cuda/cub.cuh", "wrappers of CUB"),
        ("ATen/native/cuda/Loops.cuh", "own CUDA kernels"),
        ("ATen/cuda/CUDAGraph.h", "own CUDA kernels"),
    ],
)
def test_pytorchs_headers_that_have_no_meaning_on_the_cpu_are_named(header, says):
    with pytest.raises(Unsupported, match=says) as caught:
        rewrite(f"#include <vector>\n#include <{header}>\n", "x.cu")
    assert caught.value.line == 2
