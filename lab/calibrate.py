"""Measure the constants of this machine's GPU for `lab.predict`. Takes a minute.

    python -m lab.calibrate [FILE.toml]    # default: the GPU's name, in this folder

The file is short and readable. `lab.predict(call, gpu="FILE.toml")` uses it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m lab.calibrate", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, help="where the constants go")
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print(
            "lab.calibrate measures a GPU, and torch sees none here. lab.predict has constants"
            " of GPUs that others measured: lab.predict(call, gpu='H200')",
            file=sys.stderr,
        )
        return 1
    from lab.measure import nvml
    from lab.predictor import calibration, measuring

    name = torch.cuda.get_device_name()
    file = given.file or Path(f"{name.replace('NVIDIA ', '').replace(' ', '_')}.toml")
    of = torch.cuda.get_device_properties(0)
    names = ("multi_processor_count", "max_threads_per_multi_processor", "L2_cache_size")
    properties = {it: getattr(of, it) for it in names}
    properties["capability"] = (of.major, of.minor)
    runs = []
    for run in measuring.runs():
        runs.append(run)
        print(f"{1e6 * run.seconds:10.2f} us  {run.name}, {run.parameters}")
    watched = nvml.gpu(0)
    highest = watched and watched.highest_sm_mhz()
    if not highest:
        print("NVML does not tell the highest clock of this GPU", file=sys.stderr)
        return 1
    calibration.write(calibration.constants(runs, properties, highest / 1e3), file)
    print(f"{name}: {file}; lab.predict(call, gpu={str(file)!r}) uses it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
