"""The ladders of the chapters: versions of a kernel for learning, which no op needs.

sums = lab.ladder("03_sum")                   # notebooks/ladders/03_sum.cu
steps = {"atomic": lambda: sums.atomic(x, y, n)}
lab.plot_calls(lab.time_calls(steps, bytes=x.nbytes), "Sum of all")
"""

import jitload

LADDERS = jitload.KERNELS.parent / "notebooks" / "ladders"


def ladder(name: str) -> jitload.Kernel:
    """The kernel of notebooks/ladders/NAME.cu.

    Raises ValueError if there is none, CompileError if it does not compile.
    """
    path = LADDERS / f"{name}.cu"
    if not path.is_file():
        there = ", ".join(sorted(each.stem for each in LADDERS.glob("*.cu")))
        raise ValueError(f"name: there is no ladder {name!r}; there is {there}")
    return jitload.load(path)
