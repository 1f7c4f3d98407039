"""kernel-playground check: programs, scripts and ops from the shell."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jit_cases import write

import jitload
import lab
from kernel_playground.check import FOUND, reports
from lab.checker.program import check_program
from tests.helpers import forks

PROGRAM = """
    #include <cstdio>
    __global__ void twice(float* x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i <= n) x[i] *= 2;
    }
    int main(int argc, char** argv) {
        float *x, host[100] = {};
        cudaMalloc(&x, sizeof host);
        cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
        twice<<<1, 128>>>(x, 100);
        printf("%s %d\\n", argv[1], argc);
        exit(3);
    }
"""


def test_a_program_is_checked_to_its_end(in_scratch):
    """Also where that is a call of exit(), deep inside."""
    path = write("twice.cu", PROGRAM)
    command = [sys.executable, "-m", "kernel_playground", "check", path, "--", "given"]
    done = forks.run(command)
    assert done.returncode == FOUND, done.stdout + done.stderr
    assert done.stdout.startswith("given 2\ntwice.cu: 1 finding in 1 launch\n")
    assert f"out of bounds: {path}:4," in done.stdout


CRASHES = """
    #include <cstdlib>
    #include <cstring>
    __global__ void past(float* x) { x[threadIdx.x] = 1; }
    int* nowhere() { return nullptr; }
    int main(int argc, char** argv) {
        float* x;
        cudaMalloc(&x, 124);
        past<<<1, 32>>>(x);
        cudaDeviceSynchronize();
        if (!strcmp(argv[1], "a null pointer"))
            *nowhere() = 3;
        if (!strcmp(argv[1], "abort")) abort();
        if (!strcmp(argv[1], "an exception")) throw 3;
        if (!strcmp(argv[1], "past malloc's")) {
            char* of_ten = static_cast<char*>(malloc(10));
            for (int i = 0; i < 100000; i++) of_ten[i] = char(i);
            for (int i = 0; i < 100; i++) free(malloc(50 * i));
        }
    }
"""


@pytest.fixture
def programs(in_scratch, made_once) -> Path:
    """The folder of the programs that several tests run, which so build each once."""
    texts = {"crashes": CRASHES, "local": PAST_A_LOCAL_ARRAY, "host": HOST, "memory": HOST_MEMORY}
    texts["variables"] = VARIABLES
    return made_once(
        "checked programs",
        lambda folder: [write(folder / f"{name}.cu", text) for name, text in texts.items()],
    )


def crash(path: Path, how: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "kernel_playground", "check", path, "--", how]
    return subprocess.run(command, capture_output=True, text=True)


ABORTED = "it was aborted, by a failed assertion or by the C library, which prints why"


@pytest.mark.parametrize(
    ("how", "why", "where"),
    [
        ("a null pointer", "illegal memory access at the null pointer", "*nowhere() = 3;"),
        ("abort", ABORTED, "abort();"),
        ("an exception", "an exception that nobody catches", ""),
    ],
)
def test_a_crash_of_the_host_is_told_beside_the_findings(programs, how, why, where):
    path = programs / "crashes.cu"
    done = crash(path, how)
    assert done.returncode == FOUND, done.stdout + done.stderr
    assert "crashes.cu: 2 findings in 1 launch" in done.stdout
    assert "out of bounds:" in done.stdout
    if where:
        lines = path.read_text().splitlines()
        line = next(i for i, text in enumerate(lines, 1) if where in text)
        why += f"\nat {path}:{line}"
    assert f"host crash\n  the host's code: {why}: the program ended here" in done.stdout


def test_a_program_that_damages_the_hosts_memory_does_not_end_in_silence(programs):
    done = crash(programs / "crashes.cu", "past malloc's")
    assert done.returncode, done.stdout
    assert "host overrun: " in done.stdout
    assert "the host writes 1 bytes, the last 1 past the end of memory of 10 bytes" in done.stdout


PAST_A_LOCAL_ARRAY = """
    #include <cstdlib>
    __global__ void past(const float* a, float* out, int k) {
        float r[4] = {};
        for (int i = 0; i <= k; i++)
            r[i] = a[i];
        out[threadIdx.x] = r[0];
    }
    __global__ void rows(float* out, int k) {
        float r[4][2] = {};
        for (int i = 0; i < k; i++)
            (&r[0][0])[i] = i;
        out[threadIdx.x] = r[3][1];
    }
    int main(int, char** argv) {
        float *a, *out;
        cudaMalloc(&a, 512), cudaMemset(a, 0, 512), cudaMalloc(&out, 128);
        past<<<1, 32>>>(a, out, atoi(argv[1]));
        rows<<<1, 32>>>(out, 8);
        cudaDeviceSynchronize();
    }
"""


@pytest.mark.parametrize("last", [3, 4, 6, 40, 120])
def test_an_access_past_a_local_array_is_found_and_not_let_happen(programs, last):
    (report,) = reports([str(programs / "local.cu"), "--", str(last)], {})
    found = report.findings
    assert list(found["kind"]) == ["out of bounds"] * (last > 3)
    if last > 3:
        assert found["line"].item() == 5
        assert "index 4 of r, which has 4 elements" in str(report)


def test_a_kernel_that_is_loaded_during_the_call_is_checked(in_scratch):
    write("late.cu", "__global__ void late(float* x) { x[threadIdx.x] = 1; }")

    def call(x: torch.Tensor) -> None:
        jitload.load("late.cu", target="cpu").late[1, 8](x)

    report = lab.check(call, torch.empty(4))
    assert list(report.findings["kind"]) == ["out of bounds"]
    jitload.load("late.cu", target="cpu").late[1, 4](torch.empty(4))  # its own build again


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (["nosuch"], "there is no 'nosuch'; there is square"),
        (["nosuch.cu"], "no source .*nosuch.cu"),
        (["none.cu"], r"there is no main\(\) to run"),
        (["--", "x"], "is no FILE.cu, no FILE.py and no op"),
    ],
)
def test_what_is_nothing_to_check_is_told(in_scratch, what, why):
    write("none.cu", "__global__ void k() {}")
    with pytest.raises((OSError, ValueError), match=why):
        list(reports(what, {}))


HOST = """
    #include <cub/cub.cuh>
    #include <cassert>
    #include <cstdio>
    #include <cstdlib>
    #include <cstring>
    #include <unistd.h>
    __global__ void twice(const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = 2 * x[i];
    }
    __global__ void unsure(float* y, int n) {
        assert(n < 0);  // BUG assertion
        y[threadIdx.x] = n;
    }
    struct Gap { char c; double d; };
    __constant__ float weights[16];
    __global__ void gaps(Gap* g) { g[threadIdx.x].c = 1, g[threadIdx.x].d = 2; }
    int main(int argc, char** argv) {
        const char* how = argv[1];
        const auto is = [&](const char* name) { return !strcmp(how, name); };
        const int n = 1000;
        static float host[n];
        float *x, *y;
        cudaMalloc(&x, sizeof host);
        cudaMalloc(&y, sizeof host);
        cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
        if (is("a large block")) twice<<<1, 2048>>>(x, y, n);  // BUG refused launch
        if (is("a size below 0"))
            twice<<<int(3000000000u) / 256, 256>>>(x, y, n);  // BUG refused launch
        if (is("a copy turned round"))
            cudaMemcpy(host, x, sizeof host, cudaMemcpyHostToDevice);  // BUG refused call
        if (is("a copy beyond a variable"))
            cudaMemcpyToSymbol(weights, host, 68);  // BUG refused call
        if (is("an assertion")) unsure<<<1, n>>>(y, n);
        else twice<<<is("a tail") || is("an unused tail") ? n / 256 : n / 256 + 1, 256>>>(x, y, n);
        if (is("a pointer")) printf("%g", y[1]);  // BUG host access
        cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost);  // BUG note: unwritten
        float sum = 0;
        for (int i = 0; i < (is("an unused tail") ? 768 : n); i++)
            sum += host[i];  // BUG uninitialised
        if (is("managed") || is("managed, waited for")) {
            float* both;
            cudaMallocManaged(&both, sizeof host);
            twice<<<4, 256>>>(x, both, n);
            if (is("managed, waited for")) cudaDeviceSynchronize();
            sum += both[1];  // BUG unsynchronised
        }
        if (is("right")) {
            Gap *g, there[32];
            cudaMalloc(&g, sizeof there);
            gaps<<<1, 32>>>(g);
            cudaMemcpy(there, g, sizeof there, cudaMemcpyDeviceToHost);
            for (const Gap& each : there) sum += each.c + each.d;
            size_t bytes = 0;
            void* storage = nullptr;
            cub::DeviceReduce::Sum(storage, bytes, x, y, n);
            cudaMalloc(&storage, bytes);
            cub::DeviceReduce::Sum(storage, bytes, x, y, n);
            cub::DeviceScan::InclusiveSum(storage, bytes, y, y, 1);
            twice<<<1, 1>>>(y, x, 1);
        }
        while (is("a slow host")) sleep(1);  // for ever, beside other tests
        return sum == 5;
    }
"""


def host_findings(path: Path, how: str, **options: object) -> set[str]:
    """What is found in a program, each at the line that says so."""
    report = check_program([path], arguments=[how], traffic=False, **options)
    lines = path.read_text().splitlines()
    titles = {
        ("" if row["severity"] == "error" else "note: ") + row["kind"]: row["line"]
        for row in report.findings.to_dict("records")
    }
    for title, line in titles.items():
        assert not line or lines[line - 1].endswith(f"// BUG {title}"), str(report)
    return set(titles)


@pytest.mark.parametrize(
    ("how", "kinds"),
    [
        ("a large block", {"refused launch"}),
        ("a size below 0", {"refused launch"}),
        ("a tail", {"uninitialised"}),
        ("an unused tail", {"note: unwritten"}),
        ("a copy turned round", {"refused call"}),
        ("a copy beyond a variable", {"refused call"}),
        ("an assertion", {"assertion"}),
        ("a pointer", {"host access"}),
        ("managed", {"unsynchronised"}),
        ("managed, waited for", set()),
        ("right", set()),
    ],
)
def test_what_the_host_does_wrong_is_found(programs, how, kinds):
    assert host_findings(programs / "host.cu", how) == kinds


def test_a_program_that_does_not_end_is_told_of(programs):
    assert host_findings(programs / "host.cu", "a slow host", seconds=0.2) == {"note: timeout"}


HOST_MEMORY = """
    #include <cstdio>
    #include <cstdlib>
    #include <cstring>
    #include <numeric>
    #include <string>
    #include <vector>
    __global__ void fill(double* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = i;
    }
    int main(int argc, char** argv) {
        const auto is = [&](const char* name) { return !strcmp(argv[1], name); };
        const int n = 1000, bytes = n * sizeof(double);
        std::vector<double> back(n), small(n - 1), kept;
        kept.reserve(n);
        double *y, sum = 0, *of_new = new double[n];
        cudaMalloc(&y, bytes);
        fill<<<4, 256>>>(y, n);
        cudaMemcpy(back.data(), y, bytes, cudaMemcpyDeviceToHost);
        cudaMemcpy(of_new + 1, back.data(), bytes - sizeof(double), cudaMemcpyHostToHost);
        if (is("a copy to the host"))
            cudaMemcpy(small.data(), y, bytes, cudaMemcpyDeviceToHost);  // BUG host overrun
        if (is("a copy from the host"))
            cudaMemcpy(y, small.data(), bytes, cudaMemcpyHostToDevice);  // BUG host overrun
        if (is("a copy to the middle"))
            cudaMemcpy(of_new + 2, y, bytes, cudaMemcpyDefault);  // BUG host overrun
        if (is("accumulate"))
            sum += std::accumulate(y, y + n, 0.0);  // BUG host access
        if (is("an index"))
            for (int i = 0; i <= n; i++)
                sum += back[i];  // BUG host crash
        if (is("a reserved vector"))
            kept[0] = 1;  // BUG host crash
        if (is("an index past new's"))
            for (int i = 0; i <= n; i++)
                of_new[i] = i;  // BUG host overrun
        float* odd = (float*)malloc(3 * sizeof(float));
        odd = (float*)realloc(odd, 7 * sizeof(float));
        if (is("an index past realloc's"))
            sum += odd[7];  // BUG host overrun
        if (is("an index before realloc's"))
            odd[-1] = 1;  // BUG host overrun
        for (int i = 0; i < 7; i++) odd[i] = i;
        for (int i = 0; i < 3000; i++) free(calloc(i, 4));
        free(odd);
        sum += std::accumulate(back.begin(), back.end(), 0.0);
        std::string word(7, 'x');
        for (int i = 0; i < 100; i++) word += std::to_string(i);
        cudaMemcpy(y, word.data(), word.size(), cudaMemcpyHostToDevice);
        printf("%g %g %zu\\n", sum, of_new[1], small.size());
        delete[] of_new;
    }
"""


@pytest.mark.parametrize(
    ("how", "kinds"),
    [
        ("a copy to the host", {"host overrun"}),
        ("a copy from the host", {"host overrun"}),
        ("a copy to the middle", {"host overrun"}),
        ("accumulate", {"host access"}),
        ("an index", {"host crash"}),
        ("a reserved vector", {"host crash"}),
        ("an index past new's", {"host overrun"}),
        ("an index past realloc's", {"host overrun"}),
        ("an index before realloc's", {"host overrun"}),
        ("right", set()),
    ],
)
def test_the_hosts_own_memory_is_kept_within_its_bounds(programs, how, kinds):
    assert host_findings(programs / "memory.cu", how) == kinds


VARIABLES = """
    #include <cstdio>
    #include <cstring>
    __device__ int counter;
    __device__ float table[4];
    __constant__ float scale = 2;
    __device__ const int four = 4;
    __managed__ int total;
    namespace mine { __device__ __managed__ float both[4]; }
    int plain;
    __global__ void count(int n) {
        if (threadIdx.x < n) atomicAdd(&counter, 1), atomicAdd(&total, 1);
        if (threadIdx.x < four) table[threadIdx.x] = scale, mine::both[threadIdx.x] = 1;
    }
    int main(int argc, char** argv) {
        const auto is = [&](const char* name) { return !strcmp(argv[1], name); };
        float sum = 0, host[4];
        total = 0;
        if (is("a write"))
            counter = 3;  // BUG host access
        count<<<1, 64>>>(50);
        if (is("managed"))
            sum += total;  // BUG unsynchronised
        if (is("managed, a write"))
            mine::both[1] = 2;  // BUG unsynchronised
        cudaDeviceSynchronize();
        if (is("a read"))
            sum += counter;  // BUG host access
        if (is("an element"))
            sum += table[1];  // BUG host access
        if (is("a constant"))
            sum += scale;  // BUG host access
        cudaMemcpyFromSymbol(&plain, counter, sizeof plain);
        cudaMemcpyFromSymbol(host, table, sizeof host);
        void* address;
        cudaGetSymbolAddress(&address, table);
        cudaMemset(address, 0, sizeof table);
        printf("%g %d %g\\n", sum, plain + total + four, host[1] + mine::both[2]);
        mine::both[3] = 1;
        count<<<1, 64>>>(20);
        cudaMemcpyFromSymbol(&plain, counter, sizeof plain);
        printf("%d\\n", plain + total);
    }
"""


@pytest.mark.parametrize(
    ("how", "kinds"),
    [
        ("a write", {"host access"}),
        ("a read", {"host access"}),
        ("an element", {"host access"}),
        ("a constant", {"host access"}),
        ("managed", {"unsynchronised"}),
        ("managed, a write", {"unsynchronised"}),
        ("right", set()),
    ],
)
def test_the_devices_variables_are_not_the_hosts(programs, how, kinds):
    assert host_findings(programs / "variables.cu", how) == kinds


SKIPPED = """
    __global__ void sums(const float* x, float* y) {
        __shared__ float tile[64];
        float sum = 0;
        for (int chunk = 0; chunk < 4; chunk++) {
            tile[threadIdx.x] = x[chunk * 64 + threadIdx.x];
            if (threadIdx.x < 32) {
                __syncthreads();  // BUG divergent barrier
                sum += tile[63 - threadIdx.x];
            }
            sum += tile[threadIdx.x ^ 1];
            __syncthreads();
        }
        y[threadIdx.x] = sum;
    }
    int main() {
        float *x, *y;
        cudaMalloc(&x, 1024), cudaMalloc(&y, 256);
        cudaMemset(x, 0, 1024);
        sums<<<1, 64>>>(x, y);
        cudaDeviceSynchronize();
    }
"""


def test_what_comes_of_a_divergent_barrier_is_one_finding(in_scratch):
    assert host_findings(Path(write("skipped.cu", SKIPPED)), "") == {"divergent barrier"}
