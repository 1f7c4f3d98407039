"""Extensions with <torch/extension.h>, in the forms that are common elsewhere."""

import os
import shutil
import time
from pathlib import Path

import pytest
import torch
from jit_cases import load, write

import jitload
from jitloader import background
from jitloader.building import parse_beside
from jitloader.cache import Cache
from toolchain import precompiled

pytestmark = pytest.mark.usefixtures("in_scratch")

SCALE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

template <typename scalar_t>
__global__ void scale_kernel(const scalar_t* __restrict__ x, scalar_t* y, scalar_t factor, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i];
}

torch::Tensor scale(torch::Tensor x, double factor) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.type(), "scale", ([&] {
    scale_kernel<scalar_t><<<(x.numel() + 255) / 256, 256>>>(
        x.data<scalar_t>(), y.data_ptr<scalar_t>(), (scalar_t)factor, x.numel());
  }));
  return y;
}

"""
BINDING = """
#include <torch/extension.h>
torch::Tensor scale(torch::Tensor x, double factor);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale, "scale (CUDA)"); }
"""

ADD = r"""
__global__ void cos_add_kernel(const float* x, const float* y, float* output, const int size) {
  const auto index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < size) output[index] = __cosf(x[index]) + __cosf(y[index]);
}

torch::Tensor cos_add(torch::Tensor x, torch::Tensor y) {
  auto output = torch::zeros_like(x);
  const int threads = 1024;
  const int blocks = (output.numel() + threads - 1) / threads;
  cos_add_kernel<<<blocks, threads>>>(x.data_ptr<float>(), y.data_ptr<float>(),
                                      output.data_ptr<float>(), output.numel());
  return output;
}
"""
DECLARED = r"""
torch::Tensor cos_add(torch::Tensor x, torch::Tensor y);
torch::OrderedDict<std::string, int64_t> of_what_only_the_whole_header_has;
"""


@pytest.mark.slow
def test_an_edit_of_one_is_compiled_with_pytorchs_headers_parsed(tmp_path, cache, monkeypatch):
    # Other tests' processes parse such headers in the shared cache at the same time.
    monkeypatch.setenv("JITLOAD_CACHE", os.pathsep.join([str(tmp_path / "own"), str(cache)]))
    # Beside other tests nothing is left of the processor for what takes the rest.
    monkeypatch.setattr(precompiled.idle, "COMMAND", ())
    write("scale.cu", SCALE)
    write("binding.cpp", BINDING)
    kernel = load("scale.cu", "binding.cpp")
    for dtype in (torch.float32, torch.float64):
        assert kernel.scale(torch.arange(3, dtype=dtype), 2.0).tolist() == [0, 2, 4]
    with pytest.raises(RuntimeError, match="x must be contiguous"):
        kernel.scale(torch.ones(4, 4).t(), 2.0)
    own = Cache.here().own
    if shutil.disk_usage(own).free < precompiled.LEAST_FREE:
        pytest.skip("too little disk")
    end = time.monotonic() + 600
    while any(work.is_alive() for work in background._beside.values()):
        assert time.monotonic() < end
        time.sleep(0.5)
    write("scale.cu", SCALE.replace("factor * x[i]", "factor * x[i] + 1"))
    write("binding.cpp", BINDING.replace("&scale,", "[](at::Tensor x) { return scale(x, 2); },"))
    kernel.reload()
    assert kernel.scale(torch.ones(2)).tolist() == [3, 3]
    assert kernel.builds()[0].log().count("-fpch-deps") == 2 * 2  # for each source, both
    assert not list(Path(own).glob("building/precompiled*"))


@pytest.mark.slow
def test_pytorchs_own_example_of_load_inline_with_more_of_its_headers():
    kernel = jitload.load_inline("cosines", DECLARED, ADD, functions=["cos_add"], target="cpu")
    x, y = torch.rand(50), torch.rand(50)
    torch.testing.assert_close(kernel.cos_add(x, y), x.cos() + y.cos())


def is_running(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="they are parsed on Linux alone")
def test_what_parses_them_ends_with_the_process_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("JITLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(precompiled, "LEAST_FREE", 0)
    compiler = ["sh", "-c", "sleep 9999 & echo $! >>started; wait"]  # a driver, and its compiler
    parsed = precompiled.Parsed("simulator/with_torch.h", tmp_path / "kept", compiler)
    for _ in range(2):  # the second time it goes on already
        parse_beside(parsed, Cache.here())
    end = time.monotonic() + 300  # it has only what other tests leave of the cores
    while not Path("started").exists() or not Path("started").read_text().strip():
        assert time.monotonic() < end
        time.sleep(0.05)
    time.sleep(0.5)
    (started,) = map(int, Path("started").read_text().split())
    assert is_running(started)
    background.end()
    end = time.monotonic() + 300  # to end with, too
    while is_running(started) or list(tmp_path.glob("cache/building/*")):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert not (tmp_path / "kept").exists()
