"""What the checker counts against counts derived by hand (docs/programs/checker_patterns.py)."""

import pytest
import torch
from checked import written

import jitload
import lab
from docs.programs.checker_matrices import MATRIX_PATTERNS, matrix_call
from docs.programs.checker_patterns import PATTERNS, SOURCE, call


def row(report: lab.Report, **wanted):
    assert report.findings.empty, str(report)
    table = report.traffic
    for column, value in wanted.items():
        table = table[table[column] == value]
    assert len(table) == 1, str(report)
    return table.iloc[0]


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_a_request_costs_what_it_must(pattern):
    it = row(lab.check(*call(pattern, "cpu")), memory=pattern.memory, access=pattern.access)
    assert (it.requests, it.lanes, it["size"]) == (
        pattern.requests,
        pattern.lanes,
        pattern.size,
    )
    assert it.bytes_asked == pattern.lanes * pattern.size
    if pattern.memory == "global":
        assert (it.sectors, it.ideal_sectors) == (pattern.cost, pattern.ideal)
        assert it.bytes_moved == 32 * pattern.cost
    else:
        assert (it.passes, it.bank_conflicts) == (pattern.cost, pattern.cost - pattern.ideal)
    if pattern.access == "atomic":
        assert it.contention == 32 - pattern.addresses


@pytest.mark.parametrize("pattern", MATRIX_PATTERNS, ids=str)
def test_matrices_and_copies_cost_what_they_must(pattern):
    report = lab.check(*matrix_call(pattern, "cpu"))
    assert report.findings.empty, str(report)
    table = report.traffic[report.traffic["memory"] == pattern.memory]
    table = table[table["access"] == pattern.direction]
    if pattern.memory == "global":
        assert (table["sectors"].sum(), table["ideal_sectors"].sum()) == (
            pattern.cost,
            pattern.ideal,
        )
        return
    (it,) = table.itertuples()
    assert (it.requests, it.lanes) == (1, pattern.lanes)
    assert (it.passes, it.bank_conflicts) == (pattern.cost, pattern.cost - pattern.ideal)


def test_an_addition_of_floats_costs_the_same_however_it_is_spelled(tmp_path):
    """32 lanes add to one word of shared memory: a loop of atomicCAS, whose lanes take turns."""
    additions = {
        "by_name": "atomicAdd(&sum, x[t])",
        "by_reference": "cuda::atomic_ref<float, cuda::thread_scope_block>(sum).fetch_add(x[t])",
        "by_ptx": 'asm volatile("red.shared.add.f32 [%0], %1;" :: "r"((unsigned)'
        '__cvta_generic_to_shared(&sum)), "f"(x[t]) : "memory")',
    }
    text = "#include <cuda/atomic>\n" + "".join(
        f"""
        __global__ void {name}(const float* x, float* y) {{
            __shared__ float sum;
            const int t = threadIdx.x;
            if (t == 0) sum = 0;
            __syncthreads();
            {addition};
            __syncthreads();
            y[t] = sum;
        }}"""
        for name, addition in additions.items()
    )
    kernel = written(tmp_path / "additions.cu", text)
    costs = set()
    for name in additions:
        report = lab.check(getattr(kernel, name)[1, 32], torch.rand(32), torch.empty(32))
        it = row(report, memory="shared", access="atomic")
        costs.add((it.requests, it.passes, it.bank_conflicts, it.contention))
    assert len(costs) == 1, costs
    assert costs.pop()[0] > 1


def test_a_loop_whose_last_turn_is_not_full():
    """8 turns of 4 sectors, and one in which 24 lanes ask for 96 bytes, 3 sectors."""
    function = jitload.load(SOURCE, target="cpu").read_in_a_loop
    it = row(lab.check(function, torch.zeros(1024), torch.zeros(1), 8 * 32 + 24), memory="global")
    assert (it.requests, it.lanes) == (9, 8 * 32 + 24)
    assert it.sectors == it.ideal_sectors == 8 * 4 + 3


@pytest.mark.parametrize("version", ["naive", "vector"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
def test_square_moves_what_it_must(version, dtype):
    """x is read once and y is written once: no sector is moved twice."""
    from kernels.square import square

    report = lab.check(square, torch.zeros(64, 64, dtype=dtype), version=version)
    size = 64 * 64 * dtype.itemsize
    assert report.bytes_floor == report.bytes_moved == 2 * size
    assert list(report.tensors["tensor"]) == ["x", "result"]
    assert list(report.tensors["bytes_read"]) == [size, 0]
    assert list(report.tensors["bytes_written"]) == [0, size]


REUSE = """
__global__ void k(const float* x, const float* weight, float* y, int times) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < times; k++) sum += *(volatile const float*)&x[i];
    y[i] = sum * weight[threadIdx.x];
}
"""


def test_what_blocks_share_counts_once_and_what_a_block_reads_again_counts_again(tmp_path):
    run = written(tmp_path / "reuse.cu", REUSE).k[4, 64]
    memory = torch.zeros(1024)  # in which the arguments do not lie in their order
    x, weight, y = memory[768:], memory[:64], memory[256:512]
    report = lab.check(run, x, weight, y, 3)
    assert list(report.tensors["tensor"]) == ["x", "weight", "y"]
    assert list(report.tensors["bytes_moved"]) == [3 * 1024, 4 * 256, 1024]
    assert list(report.tensors["bytes_fetched"]) == [3 * 1024, 256, 1024]
    assert report.bytes_floor == 1024 + 256 + 1024
