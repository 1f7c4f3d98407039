"""lab.predict: what it counts, what it makes of it, and that it says when it does not know."""

import csv
import importlib
import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch

import jitload
import lab
from lab.gpus import gpu
from lab.predictor import calibration, machine_code, measuring, model
from lab.predictor.measuring import Run

SOURCE = """
#include <stdint.h>
__global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
__global__ void apart(const float* x, float* y, int n) {  // lanes read rows of 32 words
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i % (n / 32) * 32 + i / (n / 32)];
}
__global__ void banks(const float* x, float* y, int n, int stride) {
    __shared__ float s[8192];
    int i = blockIdx.x * 256 + threadIdx.x, at = threadIdx.x * stride;
    s[at % 8192] = x[i];
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 32; k++) sum += s[(at + k) % 8192];
    y[i] = sum;
}
__global__ void few(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        y[i] = 2 * x[i];
}
__global__ void reduce(const int* x, int* y, int n) {
    __shared__ int s[256];
    int t = threadIdx.x, i = blockIdx.x * 512 + t;
    int sum = x[i] + x[i + 256];
    s[t] = sum;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (t < k) s[t] = sum = sum + s[t + k];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = sum;
}
__global__ void last(const float* x, float* y, int* count, int n) {  // the last block sums up
    __shared__ bool is_last;
    int i = blockIdx.x * 256 + threadIdx.x;
    y[i] = x[i];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(count, 1) == gridDim.x - 1;
    __syncthreads();
    if (is_last && threadIdx.x == 0) y[0] = n;
}
__global__ void touch(const float* x, float* y, int apart) {
    const float value = x[threadIdx.x * apart];
    if (value == 12345.678f) *y = value;
}
__global__ void fills(float* y, int n) {
    const int apart = blockDim.x * gridDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += apart) y[i] = 1;
}
__global__ void long_rows(const float* x, float* y, int cols) {
    const float* row = x + threadIdx.x * cols;
    float largest = row[0], sum = 0;
    for (int c = 0; c < cols; c++) largest = fmaxf(largest, row[c]);
    for (int c = 0; c < cols; c++) sum += row[c] - largest;
    y[threadIdx.x] = sum;
}
__global__ void indexed(const float* x, float* y, int n, int turn) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float own[32];
    for (int k = 0; k < 32; k++) own[k] = x[i] * k;
    for (int k = 0; k < 32; k++) own[(k * turn) & 31] += own[k];
    float sum = 0;
    for (int k = 0; k < 32; k++) sum += own[(k + turn) & 31] * k;
    y[i] = sum;
}
__global__ void moves(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
template <class T>
__global__ void typed(const T* x, T* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + T(1);
}
extern "C" void typed_floats(const float* x, float* y, int n) { typed<<<n / 256, 256>>>(x, y, n); }
extern "C" void typed_doubles(const double* x, double* y, int n) {
    typed<<<n / 256, 256>>>(x, y, n);
}
extern "C" void waits(const float* x, float* y, int n) {
    moves<<<n / 256, 256>>>(x, y, n);
    cudaStreamSynchronize(0);
    moves<<<n / 256, 256>>>(x, y, n);
}
extern "C" void asks_beside(const float* x, float* y, int n) {
    cudaStream_t beside;
    cudaEvent_t done;
    cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking);
    cudaEventCreate(&done);
    moves<<<1, 32, 0, beside>>>(x, y + n, 1);
    cudaEventRecord(done, beside);
    moves<<<n / 256, 256>>>(x, y, n);
    cudaEventSynchronize(done);
    cudaDeviceSynchronize();
}
__global__ void histogram(const int* in, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[in[i] & 255], 1);
}
__global__ void to_one(int* y) { atomicAdd(y, threadIdx.x); }
__global__ void strided(const float* x, float* y, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, rows = n / stride;
    if (i < n) y[i % rows * stride + i / rows] = 2 * x[i % rows * stride + i / rows];
}
__global__ void every(const float* x, float* y, int64_t n, int words) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n && x[i * words] == 12345.678f) y[0] = 1;
}
extern "C" void persistent(float* y, int n) {
    int multiprocessors;
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    fills<<<multiprocessors, 256>>>(y, n);
}
"""
N = 1 << 24
US = 1e-6
RECORDED = Path(__file__).with_name("recorded") / "calibration_h200.csv"


def has_nvcc() -> bool:
    from toolchain import machine

    try:
        return bool(machine.cuda_tool("nvcc") and machine.cuda_tool("nvdisasm"))
    except jitload.MissingTool:
        return False


needs_nvcc = pytest.mark.skipif(not has_nvcc(), reason="there is no nvcc to make machine code")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    file = tmp_path_factory.mktemp("predict") / "predicted.cu"
    file.write_text(SOURCE)
    return jitload.load(file, target="cpu")


@pytest.fixture(scope="module")
def x():
    return torch.zeros(N)


@pytest.fixture(scope="module")
def calls(kernel, x):
    """Each with the microseconds that it took on an H200, by lab.calibrate's clock."""
    y, ints = torch.zeros(N), torch.zeros(N, dtype=torch.int32)
    return {
        "copy": lambda: kernel.copy[N // 256, 256](x, y, N),
        "apart": lambda: kernel.apart[N // 256, 256](x, y, N),
        "banks1": lambda: kernel.banks[N // 256, 256](x, y, N, 1),
        "banks32": lambda: kernel.banks[N // 256, 256](x, y, N, 32),
        "one block": lambda: kernel.few[1, 1024](x, y, N),
        "few threads": lambda: kernel.few[32, 32](x, y, N),
        "reduce": lambda: kernel.reduce[N // 512, 256](ints, ints.clone(), N),
    }


MEASURED = {"banks1": 168.2, "banks32": 2146, "one block": 5945, "few threads": 6007, "reduce": 44}


@pytest.fixture(scope="module")
def predictions(calls):
    return {name: lab.predict(call, gpu="H200") for name, call in calls.items()}


@needs_nvcc
@pytest.mark.parametrize("name", MEASURED)
def test_wrong_turns_are_predicted_within_30_percent(predictions, name):
    assert predictions[name].seconds == pytest.approx(MEASURED[name] * US, rel=0.3)


@pytest.mark.parametrize("name", ["H200", "T4"])
def test_kernels_are_told_the_multiprocessors_of_that_gpu(kernel, name):
    n = 1 << 16
    prediction = lab.predict(kernel.persistent, torch.empty(n), n, gpu=name, compile=False)
    assert [it.blocks for it in prediction.counts.launches] == [gpu.load(name).multiprocessors]


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_launches_have_a_gpus_sizes(op):
    """The simulator keeps more of a row in a thread's registers than a GPU has."""
    cols = 32768
    weights = [torch.ones(cols)] * (2 if op == "layer_norm" else 1)
    of = getattr(importlib.import_module(f"kernels.norms.{op}"), op)
    prediction = lab.predict(of, torch.zeros(2, cols), *weights, version="vector", compile=False)
    kernels = [it.kernel.partition("<")[0] for it in prediction.counts.launches]
    assert kernels == ["forward_block"]


def test_registers_are_given_to_warps_by_the_256(predictions):
    """33 of each lane are 1280 of a warp, of 65536: room for 6 blocks of 8 warps, not for 7."""
    (launch,) = predictions["copy"].counts.launches
    terms = model.terms(replace(launch, registers=33, shared=0), gpu.load("H200"))
    assert (launch.threads, terms.resident, terms.limited_by) == (256, 6, "registers")


def test_a_prediction_says_what_takes_the_time(predictions):
    assert predictions["banks32"].longest.main == model.CONFLICTS
    assert predictions["one block"].longest.main == model.LATENCY
    assert predictions["apart"].seconds > 1.5 * predictions["copy"].seconds
    for it in predictions.values():
        assert it.lower < it.seconds < it.upper
        assert sum(it.parts.values()) == pytest.approx(it.seconds, rel=0.06)
        assert it.longest.main in str(it)


def test_a_sample_of_blocks_stands_for_all(predictions):
    (launch,) = predictions["copy"].counts.launches
    assert launch.recorded < launch.blocks == N // 256
    read, written = launch.accesses
    assert read.requests == written.requests == N / 32
    assert predictions["copy"].counts.bytes == 8 * N
    assert 40 < predictions["copy"].percent_of_copy < 100


def test_a_few_long_blocks_stand_for_the_others(kernel):
    """1024 blocks of 256 threads that read 1024 elements each: 0.27 billion accesses."""
    cols = 1024
    x, y = torch.zeros(256, cols), torch.zeros(256)
    prediction = lab.predict(kernel.long_rows[1024, 256], x, y, cols, compile=False)
    (launch,) = prediction.counts.launches
    assert 2 <= launch.recorded <= 20
    assert sum(it.requests for it in launch.accesses if it.key[2] == "read") == pytest.approx(
        1024 * 8 * (2 * cols + 1), rel=0.01
    )


def test_reads_displace_what_was_written_before(predictions):
    """What a copy leaves in L2 unwritten makes up for what it displaces."""
    h200 = gpu.load("H200")
    (copy,) = predictions["copy"].launches
    assert copy.dram_bytes == pytest.approx(8 * N, rel=0.01)
    (reduce,) = predictions["reduce"].launches
    displaced = min(h200.dirty_share * 4 * N, h200.dirty_bytes)
    assert reduce.dram_bytes == pytest.approx(4 * N + displaced, rel=0.02)


@needs_nvcc
def test_lanes_that_read_lines_of_their_own_wait_longer(kernel, x):
    """0.39 us longer on an H200, by lab.calibrate's microbenchmark."""
    y = torch.zeros(1)
    row, apart = (lab.predict(kernel.touch[1, 32], x, y, words) for words in (1, 1024))
    assert 0.2 * US < apart.seconds - row.seconds < 0.6 * US


def test_blocks_that_others_wait_for_run(kernel, x):
    n = 1 << 21
    y, count = torch.zeros(n), torch.zeros(1, dtype=torch.int32)
    prediction = lab.predict(kernel.last[n // 256, 256], x, y, count, n)
    assert prediction.seconds > 5 * US
    assert not count.any(), "the caller's tensors stay as they are"


CONSTANT = """
__constant__ float weights[64];
__global__ void weigh(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int k = 0; k < 64; k++) sum += weights[k] * x[i];
    y[i] = sum;
}
"""


def test_a_long_loop_is_counted_beyond_the_room_of_a_trace(kernel):
    """50,000 turns for each of two loops, in which the lanes of a warp have rows of their own."""
    cols = 50_000
    x, y = torch.zeros(32, cols), torch.zeros(32)
    prediction = lab.predict(lambda: kernel.long_rows[1, 32](x, y, cols), compile=False)
    (launch,) = prediction.counts.launches
    _, first, second = (it for it in launch.accesses if it.key[2] == "read")
    for it in (first, second):
        assert (it.requests, it.sectors) == pytest.approx((cols, 32 * cols), rel=0.01)
    # Of eight words one begins a sector: of the second loop's, one that is as far back as a row.
    far = sum(second.in_block[19:])
    assert far == pytest.approx(32 * cols / 8, rel=0.1)
    assert sum(second.in_block) == pytest.approx(32 * cols, rel=0.01)


def test_a_launch_finds_in_l2_what_those_before_it_read(kernel, x):
    def predicted(n):
        y = torch.zeros(n)
        twice = lab.predict(lambda: [kernel.copy[n // 256, 256](x, y, n) for _ in range(2)])
        return twice.launches

    first, second = predicted(1 << 20)
    assert second.dram_bytes < 0.7 * first.dram_bytes
    assert second.total < first.total
    first, second = predicted(N)  # 128 MB, more than L2
    assert second.dram_bytes == pytest.approx(first.dram_bytes, rel=0.1)


def test_what_follows_a_wait_of_the_host_begins_later(kernel, x):
    n, h200 = 1 << 12, gpu.load("H200")
    y = torch.zeros(n + 1)
    waits = lab.predict(kernel.waits, x, y, n, compile=False)
    assert waits.counts.waits == [(1, 1)]
    assert waits.waiting == pytest.approx(1e-6 * h200.host_wait_us)
    assert waits.parts[model.HOST] == waits.waiting
    # Here it waits for a launch in another stream, and then for all.
    beside = lab.predict(kernel.asks_beside, x, y, n, compile=False)
    assert beside.counts.waits == [(2, 1), (2, 2)]


@dataclass
class Work:
    x: torch.Tensor
    others: list[torch.Tensor]


def test_tensors_of_an_object_that_a_call_captures_are_known(kernel):
    n = 1 << 12
    work = Work(torch.zeros(n), [torch.zeros(n)])
    prediction = lab.predict(lambda: kernel.copy[n // 256, 256](work.x, work.others[0], n))
    assert not prediction.counts.ended
    assert prediction.counts.bytes == 8 * n


def test_tensors_that_a_call_makes_itself_count_where_there_are_no_others(kernel):
    n = 1 << 12
    prediction = lab.predict(
        lambda: kernel.copy[n // 256, 256](torch.zeros(n), torch.zeros(n), n), compile=False
    )
    assert prediction.counts.bytes == 8 * n


def test_a_call_whose_blocks_end_at_an_error_is_to_be_measured(kernel):
    n = 1 << 12
    x, y = torch.zeros(n), torch.zeros(n // 2)
    prediction = lab.predict(lambda x, y: kernel.copy[n // 256, 256](x, y, n), x, y, compile=False)
    assert prediction.counts.ended == ["out of bounds"]
    assert not prediction.certain
    assert "where they end (out of bounds)" in str(prediction)


@needs_nvcc
@pytest.mark.parametrize(
    ("name", "dtype"), [("typed_floats", torch.float32), ("typed_doubles", torch.float64)]
)
def test_machine_code_is_of_the_type_that_ran(kernel, name, dtype):
    """The launch deduces its kernel's template argument, and does not tell it."""
    n = 1 << 12
    x = torch.zeros(n, dtype=dtype)
    (launch,) = lab.predict(getattr(kernel, name), x, torch.zeros_like(x), n).counts.launches
    loads = [it for stretch in launch.code.stretches for it in stretch.instructions if it.key]
    assert {it.bytes for it in loads} == {dtype.itemsize}


def test_atomics_of_lanes_are_turns_of_sectors(kernel):
    """Of random bins on an H200 1.05 million take 275 us: docs/predict_kernels.csv."""
    n, h200 = 1 << 20, gpu.load("H200")
    letters = torch.randint(1 << 16, (n,), dtype=torch.int32)
    bins = torch.zeros(256, dtype=torch.int32)
    counted = lab.predict(kernel.histogram[n // 256, 256], letters, bins, n)
    assert counted.longest.main == model.ATOMICS
    assert counted.seconds == pytest.approx(275.4 * US, rel=0.3)
    (launch,) = lab.predict(kernel.to_one[64, 256], bins, compile=False).counts.launches
    near, far = model._atomics(launch, h200)
    assert (near, far) == pytest.approx((1e-9 * h200.atomic_ns * 64 * 256, 0), rel=0.05)


@pytest.mark.parametrize(("n", "times"), [(1 << 20, 1), (N, 8)])
def test_parts_of_sectors_are_written_once_where_l2_holds_them(kernel, n, times):
    """Each sector is written by eight warps, far from each other in time."""
    x, y = torch.zeros(n), torch.zeros(n)
    (terms,) = lab.predict(kernel.strided[n // 256, 256], x, y, n, 8).launches
    once = 4 * n  # bytes of y
    assert terms.dram_bytes >= 2 * once
    if times == 1:
        assert terms.dram_bytes < 2.2 * once
    else:  # all of it is read and written anew each time, and read before it is written
        assert terms.dram_bytes == pytest.approx(3 * times * once, rel=0.1)


def test_rows_of_dram_are_opened_for_few_bytes(kernel, x):
    """Lanes 64 words apart take longer for their sectors than a stream of as many bytes."""
    n = 1 << 22
    terms = []
    for words in (1, 64):
        big = torch.zeros(words * n)
        call = kernel.every[n // 256, 256]
        (found,) = lab.predict(lambda call=call, x=big, w=words: call(x, x, n, w)).launches
        terms.append(found)
    near, apart = terms
    assert near.alone[model.SCATTERED] < 0.4 * near.alone[model.DRAM]
    assert apart.alone[model.SCATTERED] > apart.alone[model.DRAM]


@needs_nvcc
def test_local_memory_beyond_l1_goes_to_l2(kernel, x):
    y = torch.empty(N)
    prediction = lab.predict(lambda: kernel.indexed[N // 256, 256](x, y, N, 5))
    (launch,) = prediction.counts.launches
    assert launch.stack == 128
    (terms,) = prediction.launches
    without = model.terms(replace(launch, stack=0), gpu.load("H200"))
    assert terms.alone[model.L2] > 1.5 * without.alone[model.L2]
    assert terms.alone[model.L1] > terms.alone[model.DRAM] / 4


def test_constant_memory_is_no_global_memory(tmp_path):
    (tmp_path / "weighed.cu").write_text(CONSTANT)
    weighed = jitload.load(tmp_path / "weighed.cu", target="cpu")
    x, y = torch.zeros(1 << 16), torch.zeros(1 << 16)
    prediction = lab.predict(weighed.weigh[256, 256], x, y, len(x), compile=False)
    (launch,) = prediction.counts.launches
    assert {it.region_bytes for it in launch.accesses} == {x.nbytes}


def test_lines_that_did_not_run_are_not_executed():
    """A vector path that ran, and a loop for what it leaves, which did not."""

    def stretch(line: int, loops=(), count=10):
        text = ["LDG.E R2, desc[UR4][R2.64]", *["FADD R3, R3, R2"] * (count - 1)]
        found = [machine_code._parsed(it, None) for it in text]
        found[0].key = ("k.cu", line, "read", "global")
        return machine_code.Stretch(found, loops)

    code = machine_code.Code([stretch(1), stretch(2, loops=(0,), count=100), stretch(1)])
    machine_code.count(code, {("k.cu", 1, "read", "global"): (16.0, 4)}, 8, 0, 0)
    assert [it.runs for it in code.stretches] == [8, 0, 8]
    unknown = machine_code.Code([stretch(1), stretch(2, loops=(0,), count=100), stretch(1)])
    other = {("k.cu", 3, "read", "global"): (16.0, 4), ("k.cu", 1, "read", "global"): (16.0, 4)}
    machine_code.count(unknown, other, 8, 0, 0)
    assert unknown.stretches[1].runs, "line 3 may be what the machine code calls line 2"


LOOPS = """
__global__ void hashes(int* y, int rounds) {
    unsigned h = blockIdx.x * blockDim.x + threadIdx.x;
    for (int r = 0; r < rounds; ++r) h = (h ^ h >> 16) * 0x85ebca6bu;
    y[blockIdx.x * blockDim.x + threadIdx.x] = h;
}
__global__ void escapes(int* y, int most) {  // a lane leaves the loop when its number is reached
    const int lane = threadIdx.x & 31;
    float a = 0;
    int k = 0;
    while (a < lane && k < most) {
        a = a * 0.5f + 0.5f * a + 1;
        k++;
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = k;
}
__global__ void roots(const float* x, float* y, int rounds) {
    __shared__ float s[256];
    s[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
    __syncthreads();
    float sum = 0;
    for (int j = 0; j < 64; j++) {
        const float a = s[(threadIdx.x + j) & 255];
        float r = 1;
        for (int k = 0; k < rounds; k++) r = 0.5f * (r + a / r);
        sum += r;
    }
    y[blockIdx.x * 256 + threadIdx.x] = sum;
}
"""


@needs_nvcc
def test_loops_without_accesses_are_counted(tmp_path):
    (tmp_path / "loops.cu").write_text(LOOPS)
    loops = jitload.load(tmp_path / "loops.cu", target="cpu")
    numbers, x = torch.zeros(1 << 14, dtype=torch.int32), torch.rand(1 << 14)

    def rounds(call) -> float:
        """Of the innermost loop in the source, by a warp: copies in the machine code count."""
        (launch,) = lab.predict(call).counts.launches
        loops: dict = {}
        for it in launch.code.stretches:
            if it.loops:
                loops.setdefault(it.loops, []).append(it)
        deepest = max(len(it) for it in loops)
        found = [them for loop, them in loops.items() if len(loop) == deepest]
        return sum(max(s.copies for s in them) * max(s.runs for s in them) for them in found) / (
            launch.warps
        )

    # Of 16 rounds at once, 4 and 1; of eight and four more nvcc makes no loop.
    assert rounds(lambda: loops.hashes[64, 256](numbers, 203)) == pytest.approx(203, abs=12)
    assert rounds(lambda: loops.escapes[64, 256](numbers, 100)) == pytest.approx(31, abs=1)
    assert rounds(lambda: loops.roots[64, 256](x, x, 9)) == pytest.approx(64 * 9, rel=0.05)


def test_a_load_that_no_predicate_lets_run_is_not_waited_for():
    found = [
        machine_code._parsed("LDG.E R2, desc[UR4][R4.64]", None),
        machine_code._parsed("@P0 LDG.E R3, desc[UR4][R6.64]", None),
    ]
    for line, it in zip((1, 2), found, strict=True):
        it.key = ("k.cu", line, "read", "global")
    code = machine_code.Code([machine_code.Stretch(found)])
    machine_code.count(code, {("k.cu", 1, "read", "global"): (8.0, 4)}, 8, 0, 0)
    assert [it.share for it in found] == [1, 0]


def test_without_machine_code_the_interval_is_wider(calls, predictions):
    guess = lab.predict(calls["reduce"], compile=False)
    known = predictions["reduce"]
    assert math.log(guess.upper / guess.lower) > math.log(known.upper / known.lower)
    assert guess.lower < MEASURED["reduce"] * US < guess.upper
    assert not guess.certain
    assert "Measure this" in str(guess)
    assert "nvcc" in str(guess)


def test_a_gpu_that_nobody_measured_is_marked(calls):
    prediction = lab.predict(calls["copy"], gpu="rtx 4090", compile=False)
    assert "published" in str(prediction)
    assert prediction.seconds > 8 * N / 1008e9


def test_every_gpu_has_all_constants():
    assert {"A100", "B200", "H100", "H200", "L4", "RTX 4090", "T4"} <= set(gpu.names())
    assert [name for name in gpu.names() if gpu.load(name).measured] == ["H200"]


def test_an_unknown_gpu_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="there are A100"):
        lab.predict(print, gpu="H300")
    monkeypatch.setenv("LAB_GPU", "H300")
    with pytest.raises(ValueError, match=r"^LAB_GPU: 'H300'; there are A100"):
        lab.predict(print)


def test_a_call_without_kernels_is_refused():
    with pytest.raises(RuntimeError, match="called no kernel"):
        lab.predict(torch.zeros, 3)


@pytest.mark.parametrize("of", [lab.predict, lab.check])
def test_the_result_of_a_call_is_no_function(of):
    with pytest.raises(TypeError, match=r"^function: a Tensor, .* \(kernel.forward, x\), not"):
        of(torch.zeros(3))


def test_constants_come_from_the_microbenchmarks(tmp_path):
    """H200.toml is what calibrate makes of the times that were recorded, but for launches."""
    with RECORDED.open(newline="") as file:
        runs = [
            Run(row["name"], json.loads(row["parameters"]), 1e-6 * float(row["us"]))
            for row in csv.DictReader(file)
        ]
    properties = {"multi_processor_count": 132, "max_threads_per_multi_processor": 2048}
    properties |= {"L2_cache_size": 60 << 20, "capability": (9, 0)}
    calibration.write(calibration.constants(runs, properties, 1.98), tmp_path / "H200.toml")
    made, h200 = gpu.load(tmp_path / "H200.toml"), gpu.load("H200")
    assert abs(made.launch_us - h200.launch_us) < 1.1 * h200.launch_spread_us
    same = {"source": "", "launch_us": h200.launch_us, "launch_spread_us": h200.launch_spread_us}
    assert replace(made, **same) == replace(h200, source="")


def test_microbenchmarks_stay_within_their_tensors():
    x = torch.empty(8, device="meta")
    calls = [*measuring._dram(MagicMock(), x, x, 132), *measuring._cold(MagicMock(), x, x, 132)]
    moved = [chosen["bytes"] for _, chosen, _ in calls if "bytes" in chosen]
    assert measuring.LARGE in moved
    assert max(moved) <= measuring.LARGE


@pytest.mark.parametrize("wrong", ["sockets = 2\n", ""])
def test_a_gpus_file_with_a_wrong_constant_is_told(tmp_path, wrong):
    text = (gpu.FOLDER / "H200.toml").read_text()
    text = wrong + text if wrong else re.sub(r"(?m)^blocks = .*\n", "", text)
    (tmp_path / "own.toml").write_text(text)
    told = "sockets" if wrong else "blocks"
    with pytest.raises(ValueError, match=rf"own.toml: missing or unknown: {told}"):
        gpu.load(tmp_path / "own.toml")


def test_a_figure_shows_the_roofline_and_the_parts(predictions):
    left, right = predictions["reduce"].plot().axes
    assert left.get_xscale() == "log"
    assert "predicted" in right.get_xlabel()
    assert {bar.get_hatch() for bar in right.patches} == {"///"}
    assert "<img" in predictions["reduce"]._repr_html_()
