"""What a kernel or a function of the host does to memory spares the process, and is told."""

import json
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import jitload
from tests.helpers import forks

SOURCE = Path(__file__).parent / "kernels" / "mistakes.cu"
FLOATS = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16"}
INTS = {"int": "int32", "long": "int64", "byte": "uint8", "bool": "bool"}


def line_of(text: str, which: int | None = None) -> int:
    """Of mistakes.cu: the line with a text; of several, the one that is said."""
    lines = SOURCE.read_text().splitlines()
    found = [number for number, line in enumerate(lines, 1) if text in line]
    assert which is not None or len(found) == 1
    return found[which or 0]


# A notebook: after each call it goes on, with the values that it had, and kernels compute.
NOTEBOOK = """
import json, signal, sys, torch, jitload
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
old = torch.arange(1000.0)  # before the runtime is there
kernel = jitload.load(sys.argv[1], target="cpu")
x, ints = torch.arange(1000.0), torch.zeros(64, dtype=torch.int32)
square, kept = torch.zeros(1000), [torch.full((n,), 7.0) for n in (1, 5, 16, 1000, 100_000)]
for call in json.loads(sys.argv[2]):
    try:
        eval(call)
        said = None
    except RuntimeError as error:
        said = str(error)
    x.copy_(torch.arange(1000.0)), ints.zero_()
    square.zero_()
    kernel.square[10, 100](x, square)
    well = torch.equal(square, x * x) and all((k == 7).all() for k in kept)
    print(json.dumps([call, said, bool(well and torch.equal(old, x))]), flush=True)
"""

# What is called, and what the error says.
of_128 = "memory of 128 bytes"
CALLS = {
    "kernel.square[4, 256](x, square)": r"\.cu:\d+: it reads index 1008 of x, which has 1000",
    "kernel.square[4, 256](old, square)": "it reads index 1008 of x, which has 1000",
    "kernel.store_float[1, 1](x, 10**6)": r"thread \(0, 0, 0\).*\n.*: it writes index 1000000 of x",
    "kernel.store_float[1, 1](x, -5)": r"thread \(0, 0, 0\).*\n.*\.cu:\d+: it writes index -5 of x",
    "kernel.store_float[1, 1](x, 1003)": r"thread \(0, 0, 0\).*\n.*\.cu:\d+: it writes index 1003",
    "kernel.store_float[1, 1](x, 2**31 - 1)": "illegal memory access",
    "kernel.store_float[1, 1](x, -2**31)": "illegal memory access",
    "kernel.store_float[1, 1](torch.empty(0), 3)": "illegal memory access",
    "kernel.add_float[1, 1](x, 1 << 20)": "it (reads|writes) index 1048576 of x",
    "kernel.past_shared[2, 64](x, 5000)": "illegal memory access",
    "kernel.past_shared[2, 64](x, -5000)": "illegal memory access",
    "kernel.past_shared[2, 64](x, 10**8)": "illegal memory access",
    "kernel.past_dynamic[2, 64, None, 256](x, 1)": "past the end of its dynamic shared memory\n"
    r"hint: a launch gives it, in bytes: kernel.name\[grid, block, stream, bytes\]",
    "kernel.past_local[1, 32](x, 40)": "a local array was written past its end",
    "kernel.past_local[1, 32](x, 10**6)": "stack|illegal memory access|a local array",
    "kernel.null_pointer[1, 32](5)": "access at address 0x14: an element of a null pointer",
    "kernel.wild_pointer[1, 1](1 << 45)": "illegal memory access at address 0x2000",
    "kernel.wild_pointer[1, 1](1 << 60)": "illegal memory access at an address that no memory has",
    "kernel.recursion[1, 1](ints)": "stack overflow: recursion: .*\n.*"
    rf"\.cu:{line_of('return deeper(n)')}",
    "kernel.recursion_of_two[1, 1](ints)": rf"recursion: .*\n.*\.cu:({line_of('return odd<T>(x)')}|"
    rf"{line_of('return even<T>(x)')})",
    "kernel.recursion_of_two[64, 256](ints)": "recursion: a function calls itself, directly or by",
    "kernel.division[1, 1](ints)": "integer division by zero",
    "kernel.large_local[1, 1](x, 3)": "stack overflow: the local variables take more than a thread",
    "kernel.kernel_exits[1, 1](3)": r"thread \(0, 0, 0\): it calls exit\(3\)\n"
    rf"at .*\.cu:{line_of('{ exit(status); }', 0)}",
    "kernel.kernel_raises[1, 1](15)": r"it calls raise\(15\) \(Terminated\)\nat ",
    "kernel.host_store(x, 10**6)": "the host's code: .*\n.*: it writes index 1000000 of x",
    "kernel.host_store(x, 1001)": "the host's code: .*\n.*it writes index 1001 of x",
    "kernel.host_null()": r"the host's code: illegal memory access at address 0x8.*\n.*\.cu:",
    "kernel.host_copy(x)": "the host's code: illegal memory access at address 0x10",
    "kernel.host_division(0)": "the host's code: integer division by zero",
    "kernel.host_recursion()": "the host's code: stack overflow: recursion: .*\n.*"
    rf"\.cu:{line_of('host_deeper(n) +')}",
    "kernel.host_large(3)": "the host's code: stack overflow: the local variables take more than",
    "kernel.past_local[1, 32](x, 8)": r"thread \(0, 0, 0\): a local array was written past its end",
    **{
        f"kernel.host_local({n})": r"the host's code: a local array was written past its end\n"
        rf"at .*\.cu:{line_of('int host_local') + 4}"
        for n in (11, 20)
    },
    **{
        f"kernel.host_local({n})": "the host's code: illegal memory access at .* past the end of"
        rf" the stack: .*\n.*\.cu:{line_of('i < n; i++) a[i] = i;')}"
        for n in (1000, 10**9)
    },
    "kernel.host_far(10**6)": "past the end of the stack: an index past the end of a local array",
    "kernel.host_heap(128, 4000)": f"the host's code: .* 0 bytes past the end of {of_128}\n"
    rf".*\.cu:{line_of('i < n; i++) h[i] = i;', 0)}",
    "kernel.host_heap(100, 26)": "the host's code: illegal memory access: it writes.* 0 bytes past",
    "kernel.host_array(4000)": f"the host's code: .* 0 bytes past the end of {of_128}",
    "kernel.host_vector(4000)": f"the host's code: .* 0 bytes past the end of {of_128}",
    "kernel.host_vector_in_kernel()": f"kernel copied, .* 0 bytes past the end of {of_128}",
    "kernel.host_copies_back(4000)": "a copy of 16000 bytes to a local variable of the host",
    "kernel.uses_freed(100)": "kernel copied, .* in memory of 400 bytes that has been freed",
    "kernel.host_frees_twice(64)": r"free\(\) of memory that .* has been freed before\n.*\.cu:\d+",
    "kernel.host_frees(x)": r"the host's code: free\(\) of memory that was not allocated so",
    "kernel.host_exits(3)": r"the host's code: it calls exit\(3\)\n"
    rf"at .*\.cu:{line_of('{ exit(status); }', 1)}",
    "kernel.host_aborts()": r"the host's code: it calls abort\(\)\nat .*\.cu:\d+",
    **{
        f"kernel.host_raises({number})": rf"it calls raise\({number}\) \(.+\)\n"
        rf"at .*\.cu:({line_of('raise(signal);', 1)}|{line_of('host_raises')})"
        for number in (1, 2, 6, 9, 10, 11, 15, 19)
    },
    "kernel.host_kills(15)": r"it calls kill\(getpid\(\), 15\) \(Terminated\)\nat ",
    "kernel.host_kills_all(15)": r"it calls kill\(0, 15\) \(Terminated\)\nat ",
    "kernel.host_kills_thread(12)": r"it calls pthread_kill\(thread, 12\) .*\nat ",
    "kernel.host_ends_thread()": r"it calls pthread_exit\(\)\nat ",
    "kernel.host_throws()": "an exception that nobody catches: thrown by the host",
}


@pytest.fixture(scope="module")
def kernel():
    return jitload.load(SOURCE, target="cpu")


def told(notebook: str, calls: list[str]) -> dict[str, tuple[str | None, bool]]:
    """Of each call in a notebook: what it raises, and whether the next kernel is right."""
    command = [sys.executable, "-c", notebook, str(SOURCE), json.dumps(calls)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = [json.loads(line) for line in process.stdout.splitlines()]
    assert process.returncode == 0, f"it died after {lines[-1:]}: {process.stderr}"
    return {call: (message, is_well) for call, message, is_well in lines}


@pytest.fixture(scope="module")
def said(kernel):
    return told(NOTEBOOK, list(CALLS))


@pytest.mark.parametrize("call", CALLS)
def test_a_notebook_survives_and_is_told(said, call):
    message, is_well = said[call]
    assert message is not None, "reported as success"
    assert re.search(CALLS[call], message), message
    assert is_well, "what it computes afterwards is right"


def test_on_the_stack_of_the_caller_too(kernel):
    """As from Python 3.14 on, where the host's functions have no stacks of their own."""
    calls = [call for call in CALLS if re.match(r"kernel\.host_(?!local|far)", call)]
    assert calls
    own = "import jitloader.guards\njitloader.guards.OWN_STACKS = False\n"
    for call, (message, is_well) in told(own + NOTEBOOK, calls).items():
        assert re.search(CALLS[call], message or "reported as success"), call
        assert is_well, call


# Where no memory lies but these tensors': an index that leads into another tensor is not told.
RANDOM_INDICES = """
import json, random, sys, torch, jitload
name, dtype = sys.argv[2], getattr(torch, sys.argv[3])
draw = random.Random(name)
store = getattr(jitload.load(sys.argv[1], target="cpu"), f"store_{name}")[1, 1]
for count in (1, 7, 64, 1000, 4096, 70_001):
    x = torch.zeros(count, dtype=dtype)
    far = [draw.choice((-1, 1)) * draw.randrange(count, 1 << 31) for _ in range(4)]
    for index in (count, -1, 2 * count + 64, -count - 1024, *far):
        try:
            said = store(x, index)
        except RuntimeError as error:
            said = str(error)
        print(json.dumps([index, said]))
    assert not x.any()
    at = draw.randrange(count)
    store(x, at)
    assert x[at] == 1
    assert x.sum() == 1
"""


@pytest.mark.parametrize("name", [*FLOATS, *INTS])
def test_random_indices_of_every_type(kernel, name):
    """Each write beside a tensor raises, however far; each in it does what it says."""
    dtype = {**FLOATS, **INTS}[name]
    process = forks.run([sys.executable, "-c", RANDOM_INDICES, str(SOURCE), name, dtype])
    assert process.returncode == 0, process.stderr
    lines = [json.loads(line) for line in process.stdout.splitlines()]
    assert len(lines) == 48
    for index, said in lines:
        is_near = abs(index) < 1 << 24
        wanted = f"it writes index {index} of x" if is_near else "illegal memory access"
        assert re.search(wanted, said or "it raised nothing"), (index, said)


def test_reads_and_vectors(kernel):
    tensors = [torch.zeros(1024 if i == 20 else 1 << 18) for i in range(41)]
    x, y = tensors[20], torch.zeros(1)
    powers = [sign << bits for bits in (28, 29, 30) for sign in (1, -1)]
    for index in (1024, -2000, *powers):  # none is one of another tensor
        with pytest.raises(RuntimeError, match="illegal memory access"):
            kernel.load_float[1, 1](x, y, index)
    kernel.fill_float4[1, 256](x)
    assert x.tolist() == [1, 2, 3, 4] * 256
    with pytest.raises(RuntimeError, match="it writes index 1024 of x"):
        kernel.fill_float4[1, 257](x)


def test_what_is_legal_is_not_accused(kernel):
    """An index outside a view and inside its storage; numpy's memory; tensors that share it."""
    x = torch.zeros(100)
    kernel.store_float[1, 1](x[40:50], 20)
    kernel.store_float[1, 1](x[40:50], -40)
    assert x.nonzero().flatten().tolist() == [0, 60]
    array = np.zeros(100, dtype=np.float32)
    kernel.store_float[1, 1](torch.from_numpy(array)[40:50], 20)
    assert array.nonzero()[0].tolist() == [60]
    shared = torch.from_numpy(np.arange(10, dtype=np.float32))
    kernel.square[1, 5](shared[:5], shared[5:])
    assert shared.tolist() == [0, 1, 2, 3, 4, 0, 1, 4, 9, 16]
    with pytest.raises(RuntimeError, match="it writes index 100000 of x"):
        kernel.store_float[1, 1](torch.from_numpy(array), 100_000)
    assert kernel.many(x, 100, 0.5, 1.5, 1, 2, 3, 4, 5) == 0.25
    assert x[0] == 18
    assert x[1] == 17


def test_a_small_shared_array_has_guards_too(tmp_path):
    """glibc keeps few bytes of a library beside the variables of others."""
    source = tmp_path / "small.cu"
    source.write_text(
        "__global__ void small(float* x) {\n    __shared__ float s[32];\n"
        "    s[threadIdx.x] = x[threadIdx.x];\n    __syncthreads();\n"
        "    x[threadIdx.x] = s[threadIdx.x];\n}\n"
    )
    kernel = jitload.load(source, target="cpu")
    kernel.small[1, 32](torch.ones(32))
    for threads in (33, 256):
        with pytest.raises(RuntimeError, match=r"kernel small.*illegal memory access"):
            kernel.small[1, threads](torch.ones(256))


def test_signals_that_end_nothing_and_forks_are_what_they_were(kernel):
    """A handler of the host's own, one that nobody waits for, and a child, which ends."""
    assert kernel.host_handles(10) == 2
    assert kernel.host_handles(2) == 4
    assert kernel.host_kills(0) == kernel.host_kills(17) == 0
    assert kernel.host_forks(0, 3) == 3 << 8
    assert kernel.host_forks(15, 0) == 15


def test_memory_of_the_host_is_what_it_was(kernel):
    x = torch.randn(500)
    for _ in range(3):
        assert kernel.host_allocates(x) == 500


def test_tensors_of_all_sizes_come_and_go():
    """What PyTorch allocates is its own, and given back."""
    jitload.simulator_runtime()
    draw = random.Random(4)
    held: list[tuple[int, torch.Tensor]] = []
    for step in range(1000):
        size = 0 if step % 100 == 0 else int(2 ** draw.uniform(0, 20))
        held.append((step, torch.full((size,), step, dtype=torch.int32)))
        if len(held) > 50:
            number, tensor = held.pop(draw.randrange(len(held)))
            assert (tensor == number).all()
    assert all((tensor == number).all() for number, tensor in held)


# A launch of one thread writes past its memory, so that it is repeated on a copy; meanwhile another
# thread's launch prints.
PRINTS_BESIDE = """
import contextlib, sys, threading, torch, jitload
kernel = jitload.load(sys.argv[1], target="cpu")
x, few = torch.zeros((1 << 23) - 100), torch.zeros(1)  # x ends within a page
kernel.say[1, 1](few, 0)
begun = threading.Event()

def damage():
    begun.set()
    try:
        kernel.past[1, 1](x, x.numel())
    except RuntimeError as error:
        print("damage:", error, flush=True)

thread = threading.Thread(target=damage)
thread.start()
begun.wait()
with contextlib.suppress(RuntimeError):  # of the other launch
    kernel.say[1, 1](few, 300)
thread.join()
"""


def test_a_launch_beside_one_that_is_repeated_prints(tmp_path):
    (tmp_path / "prints.cu").write_text(
        """
        #include <cstdio>
        #include <ctime>
        __device__ void pass(int milliseconds) {
            timespec from, now;
            clock_gettime(CLOCK_MONOTONIC, &from);
            do clock_gettime(CLOCK_MONOTONIC, &now);
            while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 <
                   milliseconds);
        }
        __global__ void past(float* x, int n) {
            pass(400);
            x[n] = 1;
        }
        __global__ void say(float*, int count) {
            for (int i = 0; i < count; ++i) {
                pass(1);
                printf("line %d\\n", i);
            }
        }
        """
    )
    run = [sys.executable, "-c", PRINTS_BESIDE, str(tmp_path / "prints.cu")]
    said = subprocess.run(run, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "it writes index 8388508 of x" in said
    assert said.count("line ") == 300
