"""Builds two libraries for each kernel: for the CPU, and with nvcc, where it is found, for GPUs.

TORCH_CUDA_ARCH_LIST says for which GPUs, as in "9.0a", CUDA_HOME where nvcc is. With a PyTorch for
the CPU alone the part for GPUs is compiled as well, for machines that have one, if the sources keep
to PyTorch's stable ABI; WITHOUT_CUDA=1 leaves it out.
"""

import importlib.util
import json
import os
import shutil
from pathlib import Path

import torch
from setuptools import setup
from torch.utils import cpp_extension

HERE = Path(__file__).resolve().parent
# What is compiled for each kernel, and how: as csrc/kernels.json says.
PACKAGE = "PACKAGE"
CSRC = f"{PACKAGE}/csrc"
PLAN = json.loads((HERE / CSRC / "kernels.json").read_text())


def cuda_home() -> Path | None:
    """The CUDA toolkit's folder: CUDA_HOME, nvcc on PATH, the nvcc wheel, /usr/local/cuda."""
    places = [Path(os.environ[v]) for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    if on_path := shutil.which("nvcc"):
        places.append(Path(on_path).resolve().parent.parent)
    if wheels := importlib.util.find_spec("nvidia"):
        for folder in map(Path, wheels.submodule_search_locations or ()):
            places += sorted(folder.iterdir())
    places.append(Path("/usr/local/cuda"))
    # nvcc.profile lies beside the real nvcc, and beside no wrapper script of that name.
    return next((place for place in places if (place / "bin/nvcc.profile").is_file()), None)


def extension(kernel: dict, part: str, make: type):
    """The library of a part. The stable ABI of PyTorch, and of Python, fits later releases."""
    plan = kernel[part]
    flags = list(plan["flags"])
    limited = {}
    if PLAN["stable"]:
        flags.append(f"-DTORCH_TARGET_VERSION={PLAN['target_version']}")
        limited["py_limited_api"] = True
    nvcc = [*plan["nvcc_flags"], *flags[-1:]] if PLAN["stable"] else plan["nvcc_flags"]
    return make(
        name=f"{PACKAGE}._{kernel['name']}_{part}",
        sources=[f"{CSRC}/{source}" for source in plan["sources"]],
        include_dirs=[str(HERE / CSRC / folder) for folder in plan["include"]],
        extra_compile_args={"cxx": [*flags, "-g0"], "nvcc": nvcc},
        extra_link_args=[flag.replace("CSRC/", f"{HERE / CSRC}/") for flag in plan["link"]],
        **limited,
    )


def for_gpus() -> list:
    """The extensions for GPUs; none without nvcc."""
    home = None if os.environ.get("WITHOUT_CUDA") else cuda_home()
    if home is None:
        print("no nvcc, or WITHOUT_CUDA is set: the package is built without its part for GPUs")
        return []
    if not PLAN["stable"] and torch.version.cuda is None:
        print("PyTorch here lacks its headers for CUDA: the package is built without that part")
        return []
    cpp_extension.CUDA_HOME = str(home)  # a PyTorch for the CPU looks for none
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", ";".join(PLAN["architectures"]))
    found = [extension(kernel, "cuda", cpp_extension.CUDAExtension) for kernel in PLAN["kernels"]]
    torchs = Path(cpp_extension.TORCH_LIB_PATH)
    for each in found:
        # What a PyTorch for the CPU lacks is found where the library is opened, by libtorch.so.
        there = [
            name
            for name in each.libraries
            if name not in ("c10_cuda", "torch_cuda") or (torchs / f"lib{name}.so").exists()
        ]
        runtime = sorted(home.glob("lib*/libcudart.so*"))[0]  # in wheels it has but a long name
        each.libraries = [name for name in there if name != "cudart"]
        each.extra_link_args += [f"-L{runtime.parent}", f"-l:{runtime.name}"]
        each.extra_link_args += ["-Wl,--no-as-needed", "-ltorch"]  # which has those of CUDA
    return found


setup(
    ext_modules=[
        *(extension(kernel, "cpu", cpp_extension.CppExtension) for kernel in PLAN["kernels"]),
        *for_gpus(),
    ],
    cmdclass={"build_ext": cpp_extension.BuildExtension},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if PLAN["stable"] else {},
)
