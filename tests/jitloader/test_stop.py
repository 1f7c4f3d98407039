"""Ctrl-C and the stop button while a kernel runs on the simulator: the launch ends, and says where.

Each test runs in a process of its own, which interrupts itself.
"""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from jit_cases import in_process, wait_for, write

pytestmark = [
    pytest.mark.usefixtures("in_scratch"),
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are stopped on Linux"),
]
WITHIN = 1.0  # second

KERNELS = """
    #include <cstdio>
    #include <cstdlib>
    #include <unistd.h>
    __global__ void forever(int rank) {
        if (threadIdx.x == rank)
            while (true) {} // forever
    }
    static __global__ void inlined(int rank) {
        if (threadIdx.x == rank)
            for (;;) {} // inlined
    }
    __global__ void barriers(int* y) {
        while (true) {
            __syncthreads(); // barriers
        }
    }
    __global__ void behind(int rank) {
        __syncthreads();
        if (threadIdx.x == rank) while (true) {} // behind
        __syncthreads();
    }
    __global__ void shuffles(int* y) {
        while (true) y[threadIdx.x] = __shfl_xor_sync(~0u, y[threadIdx.x], 1); // shuffles
    }
    __global__ void waits(volatile int* flag) {
        while (*flag == 0) {} // waits
    }
    __global__ void prints() {
        while (true) printf("%d", threadIdx.x); // prints
    }
    __global__ void puts_lines() {
        while (true) printf("line\\n"); // puts_lines
    }
    __device__ __noinline__ float far(float x) { return x * 1.5f; } // far
    __global__ void calls(float* y) {
        while (true) *y = far(*y) + expf(*y); // calls
    }
    __global__ void add_one(int* y) { atomicAdd(y, 1); }
    __global__ void add_two(int* y) { atomicAdd(y, 2); }
    extern "C" void again_and_again(int times) {
        for (int i = 0; i < times; i++) inlined<<<1, 32>>>(3);
    }
    extern "C" void run_inlined(int rank) { inlined<<<1, 32>>>(rank); }
    extern "C" void host_loops(volatile int* y) {
        while (*y == 0) {} // host_loops
    }
    extern "C" void host_sleeps() {
        while (true) sleep(1); // host_sleeps
    }
    extern "C" void host_prints() {
        while (true) fprintf(stderr, "%s", ""); // host_prints
    }
    extern "C" void host_allocates() {
        while (true) free(malloc(1000)); // host_allocates
    }
    static int compare(const void* a, const void* b) {
        return *(int*)a - *(int*)b; // host_sorts
    }
    extern "C" void host_sorts(int* y) {
        while (true) qsort(y, 1024, 4, compare); // host_sorts
    }
    extern "C" void host_launches(int* y) {
        while (true) add_two<<<1, 1>>>(y); // host_launches
    }
    extern "C" void host_launches_endless() {
        while (true) inlined<<<1, 32>>>(3);
    }
"""
BINDING = """
    #include "binding.h"

    extern "C" void run_inlined(int rank);

    Tensor endless(Tensor x) {
        run_inlined(5);
        check_launch(cudaGetLastError());
        return new_like(x);
    }

    STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { m.def("endless(Tensor x) -> Tensor"); }
    STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
        m.impl("endless", TORCH_BOX(&endless));
    }
"""
BEGIN = '''
    import json, os, threading, time
    import torch
    jitload.announce(False)

    def stopped(call, after=0.2, computes=True):
        """What a call raises that is interrupted after so many seconds, and how long that takes.

        Others may have the cores: where it computes, the first are the processor's, so that it has
        begun, and the second whichever is less of the processor's and the clock's.
        """
        clock = time.process_time if computes else time.perf_counter
        def interrupt():
            begun = clock()
            while clock() - begun < after:
                time.sleep(after / 20)
            interrupt.at = time.perf_counter(), time.process_time()
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            call()
            said = ["returned", ""]
        except BaseException as error:
            said = [type(error).__name__, str(error)]
        at, computed = interrupt.at
        took = time.perf_counter() - at
        if computes:
            took = min(took, time.process_time() - computed)
        thread.join()
        return [*said, took]

    y, z = torch.zeros(1024, dtype=torch.int32), torch.zeros(8)
    kernel = jitload.load("stopped.cu", target="cpu")

    def in_thread(call):
        "Call it in another thread, and keep what it raises."
        def run():
            try:
                call()
            except BaseException as error:
                raised.append(f"{type(error).__name__}: {error}")
        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.1)
        return thread

    raised = []
'''
BEGIN_BOUND = (
    BEGIN
    + """
    bound = jitload.load("stopped.cu", "stopped.cpp", target="cpu")
    bound.register_fake("endless")(torch.empty_like)
    """
)


def results_of(code: str, begin: str = BEGIN, **settings: str) -> list:
    """What a process prints that runs this code after `begin`, line by line, as JSON."""
    write("stopped.cu", KERNELS)
    write("stopped.cpp", BINDING)
    script = textwrap.dedent(begin) + textwrap.dedent(code)
    process = in_process(script, env=os.environ | settings, start_new_session=True)
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, err
    return [json.loads(line) for line in re.findall(r"^JSON (.*)$", out, re.MULTILINE)]


def computed(process: int) -> float:
    """The seconds that a process has had of processors."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def wait_until_computed(seconds: float, process: int) -> None:
    """So many more from now: what it was told to call has begun."""
    begun = computed(process)
    wait_for(lambda: computed(process) - begun >= seconds, "it to compute")


def line_of(marker: str) -> int:
    lines = Path("stopped.cu").read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.endswith(f"// {marker}"))


@pytest.mark.parametrize("workers", ["1", "4"])
def test_any_endless_kernel_is_stopped_where_it_stands(workers):
    code = """
        calls = {
            "forever": lambda: kernel.forever[1, 32](7),
            "inlined": lambda: kernel.run_inlined(31),
            "barriers": lambda: kernel.barriers[100, 256](y),
            "behind": lambda: kernel.behind[(3, 3), (64, 1)](5),
            "shuffles": lambda: kernel.shuffles[64, 64](y),
            "waits": lambda: kernel.waits[1000, 128](z.int()),
            "prints": lambda: kernel.prints[64, 64](),
            "puts_lines": lambda: kernel.puts_lines[64, 64](),
            "calls": lambda: kernel.calls[2, 1024](z),
        }
        for name, call in calls.items():
            said = stopped(call)
            y.zero_()
            kernel.add_one[100, 100](y)
            print("\\nJSON", json.dumps([name, *said, y[0].item()]))
    """
    results = results_of(code, SIMULATOR_THREADS=workers)
    assert len(results) == 9
    for name, error, message, took, count in results:
        assert error == "KeyboardInterrupt", name
        place = r"was stopped at .*stopped\.cu:(\d+) in block \(\d+, \d+, 0\), thread"
        found = re.search(rf"^kernel {name}, launched at .*{place}", message)
        assert found, message
        lines = {line_of(name), line_of("far")} if name == "calls" else {line_of(name)}
        assert int(found[1]) in lines, message
        assert took < WITHIN, name
        assert count == 10_000, "the next launch works"
    threads = {name: message.rpartition("thread ")[2] for name, _, message, *_ in results}
    assert threads["forever"] == "(7, 0, 0)"
    assert threads["inlined"] == "(31, 0, 0)"
    assert threads["behind"] == "(5, 0, 0)"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls are left on x86-64")
@pytest.mark.parametrize("launch_before", [True, False])
def test_any_endless_function_of_the_host_is_left_where_it_stands(launch_before):
    names = re.findall(r"void (host_\w+)", KERNELS)
    *results, count = results_of(f"""
        if {launch_before}:
            kernel.add_one[1, 1](y)
        for name in {names}:
            for _ in range(2):
                y.zero_()
                given = (y,) if name in ("host_loops", "host_sorts", "host_launches") else ()
                call, computes = lambda: getattr(kernel, name)(*given), name != "host_sleeps"
                print("JSON", json.dumps([name, *stopped(call, computes=computes)]))
        y.zero_()
        kernel.add_one[100, 100](y)
        print("JSON", y[0].item())
    """)
    assert len(results) == 2 * len(names)
    for name, error, message, took in results:
        assert error == "KeyboardInterrupt", (name, error, message)
        assert took < 2 * WITHIN, name  # it has a fifth of a second to end by itself
        if name == "host_launches_endless":
            assert re.match(r"kernel inlined, launched at .* was stopped", message), message
            continue
        place = re.match(
            r"(?:the host's code|kernel add_two, launched at \S+), was stopped(?: at \S+cu:(\d+))?",
            message,
        )
        assert place, message
        if message.startswith("the host") and name != "host_sorts":
            assert int(place[1]) == line_of(name), message
    assert count == 10_000, "the next launch works"


def test_a_long_launch_of_short_blocks_is_stopped():
    [result] = results_of(
        "print('JSON', json.dumps(stopped(lambda: kernel.add_one[1 << 30, 1](y))))"
    )
    error, message, took = result
    assert error == "KeyboardInterrupt"
    assert message.startswith("kernel add_one, launched at")
    assert took < WITHIN


def test_one_call_of_many_endless_launches_is_stopped_once():
    [result] = results_of("print('JSON', json.dumps(stopped(lambda: kernel.again_and_again(50))))")
    assert result[0] == "KeyboardInterrupt"
    assert "thread (3, 0, 0)" in result[1]
    assert result[2] < WITHIN


@pytest.mark.slow
def test_ops_and_their_gradients_and_compiled_functions_are_stopped():
    code = """
        class Doubled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return 2 * x

            @staticmethod
            def backward(ctx, grad):
                return bound.endless(grad)

        x = torch.ones(8, requires_grad=True)
        compiled = torch.compile(lambda x: bound.endless(2 * x) + 1, backend="aot_eager")
        namespace = getattr(torch.ops, bound.build.name)
        backward = lambda: Doubled.apply(x).sum().backward()
        def in_other_thread():
            in_thread(backward).join()
        for call, after in [
            (lambda: bound.endless(z), 0.2),
            (lambda: namespace.endless(z), 0.2),
            (backward, 0.2),
            (lambda: compiled(z), 20),  # it compiles meanwhile
            (lambda: compiled(z), 0.2),
        ]:
            print("JSON", json.dumps(stopped(call, after)))
        error, message, took = stopped(lambda: in_other_thread())
        time.sleep(0.5)
        print("JSON", json.dumps([error, raised[0], took]))
    """
    *results, in_other_thread = results_of(code, BEGIN_BOUND)
    assert len(results) == 5
    for error, message, took in results:
        assert error == "KeyboardInterrupt"
        assert f"stopped.cu:{line_of('inlined')} in block (0, 0, 0), thread (5, 0, 0)" in message
        assert took < WITHIN
    assert in_other_thread[0] == "KeyboardInterrupt"
    assert "kernel inlined" in in_other_thread[1]
    assert "thread (5, 0, 0) was interrupted" in in_other_thread[1]


@pytest.mark.slow
@pytest.mark.parametrize("binding", ["PYBIND11_MODULE", "TORCH_LIBRARY"])
def test_other_bindings_are_stopped(binding):
    """A function of pybind11's holds the interpreter's lock while it runs."""
    write(
        "other.cpp",
        f"""
        #include <torch/csrc/utils/pybind.h>
        #include <torch/library.h>
        extern "C" void run_inlined(int rank);
        void endless(int64_t rank) {{ run_inlined(rank); }}
        {binding}(TORCH_EXTENSION_NAME, m) {{ m.def("endless", &endless); }}
        """,
    )
    # The lock is not given to the thread that interrupts: another process does.
    code = """
        import subprocess
        other = jitload.load("stopped.cu", "other.cpp", target="cpu", flags=["-O0"])
        subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -INT {os.getpid()}"])
        begin, used = time.perf_counter(), time.process_time()
        try:
            other.endless(9)
        except KeyboardInterrupt as error:
            took = min(time.perf_counter() - begin, time.process_time() - used)
            print("JSON", json.dumps([str(error), took]))
    """
    [(message, took)] = results_of(code)
    assert "thread (9, 0, 0)" in message
    assert took < 0.5 + WITHIN


def test_launches_of_other_threads_are_stopped():
    code = """
        for rank in 3, 4:
            thread = in_thread(lambda: kernel.forever[1, 32](rank))
            wait = thread.join if rank == 3 else lambda: time.sleep(10)
            said = stopped(wait)
            while not raised:  # where join is interrupted, it says that the thread has ended
                time.sleep(0.01)
            print("JSON", json.dumps([*said, raised.pop()]))
    """
    results = results_of(code)
    assert len(results) == 2
    for rank, (error, message, took, raised) in enumerate(results, 3):
        assert (error, message) == ("KeyboardInterrupt", ""), "Python's own, as in any program"
        assert took < WITHIN
        assert raised.startswith("RuntimeError: forever: ")
        assert f"kernel forever, launched at {Path('stopped.cu').absolute()}" in raised
        assert f"thread ({rank}, 0, 0) was interrupted" in raised


def test_who_waits_for_the_launch_of_another_thread_is_not_stuck():
    code = """
        thread = in_thread(lambda: kernel.forever[1, 32](3))
        said = stopped(lambda: kernel.add_one[1, 1](y))
        thread.join()
        print("JSON", json.dumps([*said, *raised]))
    """
    [(error, message, took, raised)] = results_of(code)
    assert error == "KeyboardInterrupt"
    assert "thread (3, 0, 0)" in message
    assert took < WITHIN
    assert "was interrupted" in raised


def test_a_handler_of_ones_own_is_called_and_what_it_raises_is_raised():
    code = """
        heard = []
        signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
        said = stopped(lambda: kernel.forever[1, 32](3))
        print("JSON", json.dumps([*said, heard]))

        def leave(number, frame):
            raise RuntimeError("my own")

        signal.signal(signal.SIGINT, leave)
        print("JSON", json.dumps(stopped(lambda: kernel.forever[1, 32](3))))
    """
    (error, message, _, heard), own = results_of(code)
    assert error == "KeyboardInterrupt"
    assert "kernel forever" in message
    assert heard == [signal.SIGINT]
    assert own[:2] == ["RuntimeError", "my own"]


def test_an_ignored_interrupt_stops_nothing():
    code = """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        said = stopped(lambda: [kernel.add_one[1 << 20, 8](y) for _ in range(3)], 0.01)
        print("JSON", json.dumps([*said, y[0].item()]))
    """
    [(end, _, _, count)] = results_of(code)
    assert (end, count) == ("returned", 3 << 23)


def test_between_and_after_launches_an_interrupt_is_pythons_own():
    code = """
        def often():
            while True:
                kernel.add_one[1, 1](y)
        print("JSON", json.dumps(stopped(often, 0.1)))
        for after in 0.1, 2:
            print("JSON", json.dumps(stopped(lambda: time.sleep(9), after, computes=False)))
    """
    results = results_of(code)
    assert len(results) == 3
    assert all(error == "KeyboardInterrupt" and took < WITHIN for error, _, took in results)
    assert all(message == "" for _, message, _ in results[1:])


@pytest.mark.slow
def test_interrupts_at_any_moment_are_neither_lost_nor_deadly():
    code = """
        import random
        random.seed(7)
        calls = [
            lambda: kernel.forever[8, 64](3),
            lambda: kernel.barriers[8, 64](y),
            lambda: kernel.add_one[1 << 30, 1](y),
            lambda: bound.endless(z),
            lambda: [kernel.add_one[1, 1](y) for _ in range(1 << 20)],
            lambda: [kernel.add_one[99, 99](y) for _ in range(1 << 20)],
        ]
        for _ in range(200):
            error, message, took = stopped(random.choice(calls), 0.03 * random.random() ** 2)
            print("JSON", json.dumps([error, took]))
    """
    # What comes before the call is interrupted too, and is caught as well.
    begin = BEGIN_BOUND.replace(
        "        thread.start()\n        try:", "        try:\n            thread.start()", 1
    )
    results = results_of(code, begin)
    assert len(results) == 200
    assert {error for error, _ in results} == {"KeyboardInterrupt"}
    assert max(took for _, took in results) < WITHIN


def test_a_forked_child_is_stopped_too():
    code = """
        kernel.add_one[64, 64](y)
        if (child := os.fork()) == 0:
            said = stopped(lambda: kernel.forever[64, 64](3))
            print("JSON", json.dumps(said), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """
    [(error, message, took)] = results_of(code)
    assert error == "KeyboardInterrupt"
    assert "kernel forever" in message
    assert took < WITHIN


def test_a_check_is_stopped_and_the_next_one_works():
    code = """
        import lab
        lab.check(kernel.add_one[1, 32], y)  # it builds
        for call in (lambda: kernel.forever[1, 32](3), lambda: kernel.calls[1, 32](z)):
            print("JSON", json.dumps(stopped(lambda: lab.check(call), 0.5)))
        print("JSON", json.dumps(str(lab.check(kernel.add_one[1, 32], y))))
        kernel.add_one[1, 32](y.zero_())
        print("JSON", y[0].item())
    """
    forever, calls, report, count = results_of(code)
    assert f"stopped.cu:{line_of('forever')} in block" in forever[1]
    line = int(re.search(r"was stopped at .*stopped\.cu:(\d+) in block", calls[1])[1])
    assert line_of("calls") - 1 <= line <= line_of("calls"), "the loop, or where it begins"
    assert forever[0] == calls[0] == "KeyboardInterrupt"
    assert max(forever[2], calls[2]) < WITHIN
    assert "no findings in 1 launch" in report
    assert count == 32


def test_a_script_ends_as_any_that_is_interrupted():
    write("stopped.cu", KERNELS)
    code = """
        kernel = jitload.load("stopped.cu", target="cpu")
        print("launching", flush=True)
        kernel.forever[1, 32](3)
    """
    process = in_process(code, start_new_session=True)
    assert process.stdout.readline() == "launching\n"
    wait_until_computed(0.3, process.pid)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    last = err.strip().splitlines()[-1]
    assert last.startswith("KeyboardInterrupt: kernel forever, launched at")
    assert last.endswith("in block (0, 0, 0), thread (3, 0, 0)")


def test_a_kernel_that_runs_for_long_says_so():
    write("stopped.cu", KERNELS)
    code = """
        kernel = jitload.load("stopped.cu", target="cpu")
        kernel.forever[1, 32](3)
    """
    process = in_process(code, start_new_session=True)
    for said in process.stderr:
        if "it has run for" in said:
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert re.match(r"kernel forever, launched at .*: it has run for \d+ seconds; Ctrl-C, ", said)
    assert "KeyboardInterrupt" in err
    assert "it has run for" not in err


def test_the_stop_button_of_a_notebook_ends_a_launch(cache):
    """In a kernel of its own, which is interrupted as Jupyter interrupts it."""
    manager_of = pytest.importorskip("jupyter_client.manager", reason="needs Jupyter")
    settings = os.environ | {"JITLOAD_CACHE": str(cache), "JITLOAD_TARGET": "cpu"}
    manager, client = manager_of.start_new_kernel(env=settings, cwd=Path.cwd())

    def run(code: str, stop_after: float | None = None) -> tuple[dict, float]:
        """The reply to a cell, and how long after the stop it came: see `stopped`."""
        pid = manager.provisioner.pid
        request = client.execute(code, stop_on_error=False)  # else the next may be aborted
        if stop_after:
            wait_until_computed(stop_after, pid)
            manager.interrupt_kernel()
        begin, used = time.perf_counter(), computed(pid)
        while True:
            reply = client.get_shell_msg(timeout=60)
            if reply["parent_header"]["msg_id"] == request:
                took = time.perf_counter() - begin
                return reply["content"], min(took, computed(pid) - used)

    try:
        cell = f"%%cu stopped\n{textwrap.dedent(KERNELS)}"
        for begin in ("%load_ext lab\nimport torch; state = 5", cell):
            assert run(begin)[0]["status"] == "ok"
        lines = textwrap.dedent(KERNELS).splitlines()
        line = 1 + next(n for n, text in enumerate(lines, 1) if text.endswith("// forever"))
        for launch in (
            "stopped.forever[1, 32](3)",
            "stopped.forever[100, 256](3)",
            "import asyncio; await asyncio.sleep(0); stopped.forever[1, 32](3)",
        ):
            reply, seconds = run(launch, stop_after=0.5)
            assert reply["ename"] == "KeyboardInterrupt"
            [shown] = reply["traceback"]
            assert shown == f"KeyboardInterrupt: {reply['evalue']}"
            assert re.search(
                rf"stopped.cu:{line} in block \(\d+, 0, 0\), thread \(3, 0, 0\)", shown
            )
            assert seconds < WITHIN
            reply, _ = run(
                "y = torch.zeros(1, dtype=torch.int32); stopped.add_one[1, 7](y);"
                " assert y.item() == 7 and state == 5"
            )
            assert reply["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
