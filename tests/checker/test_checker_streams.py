"""kernel-playground check: work in streams that nothing orders."""

import re

from jit_cases import write

from kernel_playground.check import reports

HEAD = """
    __global__ void fill(float* a, int n, float v) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) a[i] = v;
    }
    __global__ void twice(const float* a, float* b, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) b[i] = 2 * a[i];
    }
    __global__ void every_other(float* a, int n, int first) {
        int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x) + first;
        if (i < n) a[i] = i;
    }
    __global__ void count(int* c) { atomicAdd(c, 1); }
    const int n = 1000;
    float *a, *b, *host;
    int* counter;
    cudaStream_t s, t, beside;
    cudaEvent_t e, f;
    const auto to_device = cudaMemcpyHostToDevice, to_host = cudaMemcpyDeviceToHost;
    void begin() {
        cudaMalloc(&a, 4 * n), cudaMalloc(&b, 4 * n), cudaMallocHost(&host, 4 * n);
        cudaMalloc(&counter, 4), cudaMemset(counter, 0, 4), cudaMemset(b, 0, 4 * n);
        cudaStreamCreate(&s), cudaStreamCreate(&t);
        cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking);
        cudaEventCreate(&e), cudaEventCreateWithFlags(&f, cudaEventDisableTiming);
        for (int i = 0; i < n; i++) host[i] = i;
        cudaMemcpy(a, host, 4 * n, to_device);
        cudaDeviceSynchronize();
    }
"""

# Each second call races with the first one, or the host with a copy.
RACES = """
    float sum = 0;
    int main() {
        begin();
        fill<<<8, 128, 0, s>>>(a, n, 1);  // FIRST kernels
        twice<<<8, 128, 0, t>>>(a, b, n);  // SECOND kernels
        cudaDeviceSynchronize();
        cudaMemset(a, 0, 4 * n);  // FIRST default
        twice<<<8, 128, 0, beside>>>(a, b, n);  // SECOND default
        cudaDeviceSynchronize();
        cudaEventRecord(e, s);
        fill<<<8, 128, 0, s>>>(a, n, 1);  // FIRST early
        cudaStreamWaitEvent(t, e, 0);
        twice<<<8, 128, 0, t>>>(a, b, n);  // SECOND early
        cudaDeviceSynchronize();
        fill<<<8, 128, 0, s>>>(a, n, 1);  // FIRST copied
        cudaMemcpyAsync(host, a, 4 * n, to_host, t);  // SECOND copied
        cudaDeviceSynchronize();
        fill<<<8, 128, 0, s>>>(a, n, 1);  // FIRST another
        cudaStreamSynchronize(t);
        twice<<<8, 128, 0, t>>>(a, b, n);  // SECOND another
        cudaDeviceSynchronize();
        fill<<<4, 128, 0, s>>>(a, 501, 2);  // FIRST overlap
        fill<<<4, 128, 0, t>>>(a + 500, 500, 3);  // SECOND overlap
        cudaDeviceSynchronize();
        fill<<<8, 128, 0, s>>>(a, n, 1);
        cudaEventRecord(e, s);
        cudaStreamWaitEvent(t, e, 0);
        cudaMemcpyAsync(host, a, 4 * n, to_host, t);  // FIRST again
        fill<<<8, 128, 0, s>>>(a, n, 2);  // SECOND again
        cudaDeviceSynchronize();
        cudaMemcpyAsync(host, b, 4 * n, to_host, t);
        cudaStreamSynchronize(s);
        sum += host[5];  // READ
        cudaDeviceSynchronize();
        return sum == 0;
    }
"""

CORRECT = """
    int main() {
        begin();
        cudaMemcpyAsync(a, host, 4 * n, to_device, s);
        cudaEventRecord(e, s);
        cudaStreamWaitEvent(beside, e, 0);
        twice<<<8, 128, 0, beside>>>(a, b, n);
        cudaEventRecord(f, beside);
        cudaStreamWaitEvent(t, f);
        fill<<<8, 128, 0, t>>>(b, n, 1);
        cudaStreamSynchronize(t);
        fill<<<8, 128, 0, s>>>(b, n, 1);  // t is over, and what t had waited for
        fill<<<8, 128>>>(b, n, 2);  // the default stream waits for s
        fill<<<8, 128, 0, t>>>(b, n, 3);  // and t for it
        cudaDeviceSynchronize();
        for (int i = 0; i < 4; i++) {
            cudaStream_t q = i % 2 ? s : beside;
            cudaMemcpyAsync(a + 250 * i, host + 250 * i, 1000, to_device, q);
            twice<<<2, 128, 0, q>>>(a + 250 * i, b + 250 * i, 250);
            cudaMemcpyAsync(host + 250 * i, b + 250 * i, 1000, to_host, q);
        }
        cudaStreamSynchronize(s), cudaStreamSynchronize(beside);
        every_other<<<4, 128, 0, s>>>(a, n, 0);
        every_other<<<4, 128, 0, t>>>(a, n, 1);
        count<<<2, 32, 0, s>>>(counter);
        count<<<2, 32, 0, t>>>(counter);
        cudaEventRecord(e, s), cudaEventRecord(f, t);
        cudaEventSynchronize(e), cudaEventSynchronize(f);
        twice<<<8, 128, 0, beside>>>(a, b, n);
        twice<<<8, 128, 0, s>>>(a, host, n);  // both read a
        cudaStreamSynchronize(beside), cudaStreamSynchronize(s);
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
        fill<<<8, 128, 0, s>>>(a, n, 5);
        cudaEventRecord(e, s);
        cudaStreamWaitEvent(t, e);
        twice<<<8, 128, 0, t>>>(a, b, n);
        cudaEventRecord(f, t);
        cudaStreamWaitEvent(s, f);
        cudaStreamEndCapture(s, &graph);
        cudaGraphInstantiate(&exec, graph, 0);
        cudaGraphLaunch(exec, s);
        cudaStreamSynchronize(s);
        cudaMemcpy(host, b, 4 * n, to_host);
        return host[7] != 10;
    }
"""


def test_work_in_two_streams_that_nothing_orders_is_found_at_both_calls(in_scratch):
    lines = write("races.cu", HEAD + RACES).read_text().splitlines()
    marks: dict[str, list[int]] = {}
    for number, line in enumerate(lines, 1):
        if found := re.search(r"// (?:FIRST|SECOND) (\w+)", line):
            marks.setdefault(found[1], []).insert(0, number)
    (report,) = reports(["races.cu"], {})
    found = report.findings
    streams = found[found["kind"] == "race between streams"]
    assert [[*each] for each in zip(streams["line"], streams["other_line"], strict=True)] == [
        *marks.values()
    ], str(report)
    (read,) = (number for number, line in enumerate(lines, 1) if "// READ" in line)
    (late,) = found[found["kind"] != "race between streams"].to_dict("records")
    assert (late["kind"], late["line"]) == ("unsynchronised", read)
    assert "has not waited for the copy" in late["message"]
    text = str(report)
    assert "kernel twice reads byte 0" in text
    assert "kernel fill writes in another stream" in text


def test_nothing_is_found_where_events_waits_and_the_default_stream_order_work(in_scratch):
    write("ordered.cu", HEAD + CORRECT)
    (report,) = reports(["ordered.cu"], {})
    assert report.findings.empty, str(report)
