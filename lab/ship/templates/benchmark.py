"""The package's operators beside PyTorch's: python benchmarks/benchmark.py [OP...]

On a GPU the figures are medians with a cold L2 cache. Without one the kernels run as plain C++ on
the CPU, for correctness' sake: there is nothing to compare, and only the time of a call is shown.
"""

import sys
import time

import torch
import torch._functorch.config

from PACKAGE import cases, timing
from PACKAGE.reference import OPS

ROWS = {1024: 65536, 4096: 16384, 16384: 4096}


def on_a_gpu(names: list[str]) -> None:
    torch._functorch.config.donated_buffer = False  # a backward pass is timed many times
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, microseconds")
    print(f"{'':44} {'ours':>10} {'eager':>10} {'compile':>10}")
    for name in names:
        op = OPS[name]
        shapes = [(rows, cols) for cols, rows in ROWS.items()]
        for rows, cols in [(4096, 128)] if op.sizes else shapes:
            for direction in ("forward", "backward"):
                case = cases.Case(name, op.options[0], direction, "bfloat16", rows, cols, "cuda")
                calls = cases.function_of(name), op.function, torch.compile(op.function)
                taken = [timing.microseconds(timing.step_of(case, each)) for each in calls]
                print(f"{case!s:44} " + " ".join(f"{it:10.1f}" for it in taken), flush=True)


def on_the_cpu(names: list[str]) -> None:
    print("no GPU: the kernels run as plain C++, milliseconds")
    for name in names:
        case = cases.Case(name, OPS[name].options[0], "forward", "float32", 64, 256, "cpu")
        step = timing.step_of(case, cases.function_of(name))
        step()
        began = time.perf_counter()
        for _ in range(5):
            step()
        print(f"{case!s:44} {(time.perf_counter() - began) * 200:10.2f}", flush=True)


if __name__ == "__main__":
    (on_a_gpu if "cuda" in cases.devices() else on_the_cpu)(sys.argv[1:] or list(OPS))
