"""The layout that Hugging Face's kernel-builder compiles: build.toml, torch-ext/, edition 5.

    build.toml, flake.nix, README.md, LICENSE
    NAME_cuda/      the kernels and their binding, as they are
    NAME_cpu/       the same, rewritten for a C++ compiler, and what they run on
    torch-ext/torch_binding.cpp       makes the library a Python module
    torch-ext/NAME/                   the package's Python
    tests/, benchmarks/

kernel-builder adds torch-ext/registration.h, whose macros the bindings register with, and _ops.py,
which knows the namespace that it gives each build.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from lab.ship import documents
from lab.ship.package import TARGET, Kernel, Package
from lab.ship.python_files import LIBRARY, template, within

_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_REGISTERED = "#include <torch/csrc/stable/library.h>\n"
_BINDING = """\
// The operators are registered beside their kernels; this makes the library a module of Python's.
#include "registration.h"

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
_FLAKE = """\
{
  inputs.kernel-builder.url = "github:huggingface/kernels";

  outputs =
    { self, kernel-builder, ... }:
    kernel-builder.lib.genKernelFlakeOutputs {
      inherit self;
      path = ./.;
    };
}
"""


def write(package: Package, for_hub: Package, folder: Path, repository: str | None) -> None:
    """Write the layout into a folder, which is made anew.

    for_hub: the same package, whose sources were made for kernel-builder.
    repository: of the Hub, "OWNER/NAME".

    Raises:
        ValueError: kernel-builder cannot have a package like this.
    """
    files = _files(package, for_hub, repository)
    if folder.exists():
        shutil.rmtree(folder)
    for place, text in files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _only(package: Package) -> Kernel:
    """The kernel of a package that kernel-builder can have."""
    if len(package.kernels) != 1:
        raise ValueError("kernel-builder gives a package one namespace: --hub takes one op")
    (kernel,) = package.kernels
    if kernel.shipped.binding == "c" or not package.is_stable:
        raise ValueError(
            f"--hub wants {kernel.name} to register its operators by schemas, through PyTorch's"
            " stable ABI: STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { m.def(SCHEMA); } and"
            " STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CUDA, m)"
        )
    if not _NAME.fullmatch(package.distribution):
        raise ValueError(f"the Hub has no name {package.distribution!r}: letters, digits and -")
    return kernel


def _files(package: Package, for_hub: Package, repository: str | None) -> dict[str, str]:
    name = package.name
    files = {
        "build.toml": build_toml(for_hub, repository),
        "flake.nix": _FLAKE,
        "README.md": documents.readme(package),
        "LICENSE": (LIBRARY / "LICENSE").read_text(),
        "torch-ext/torch_binding.cpp": _BINDING,
    }
    for place, text in _only(for_hub).shipped.files.items():
        if not place.endswith(".map"):
            files[_moved(place, name)] = _with_registration(text)
    for place, text in package.python_files().items():
        if place not in ("verify.py",):
            files[f"torch-ext/{name}/{place}"] = text
    libraries = template("hub_libraries.py", name)
    files[f"torch-ext/{name}/libraries.py"] = within(libraries, name)
    return files


def _moved(place: str, name: str) -> str:
    """cuda/x.cu is NAME_cuda/x.cu; cpu/KERNEL/... and simulator/... are both in NAME_cpu."""
    part, _, rest = place.partition("/")
    if part == "cuda":
        return f"{name}_cuda/{rest}"
    return f"{name}_cpu/{rest.partition('/')[2] if part == 'cpu' else place}"


def _with_registration(text: str) -> str:
    """A binding that finds the macros which it registers with."""
    if "LIBRARY_EXPAND(" not in text and "LIBRARY_IMPL_EXPAND(" not in text:
        return text
    head = re.search(r"(?m)^#line .*\n", text)
    at = head.start() if head else 0
    return f'{text[:at]}{_REGISTERED}#include "registration.h"\n{text[at:]}'


def build_toml(package: Package, repository: str | None) -> str:
    kernel = _only(package)
    name, shipped = package.name, kernel.shipped
    hub = f'\n[general.hub]\nrepo-id = "{repository}"\n' if repository else ""
    headers = sorted(_moved(place, name) for place in shipped.files if not place.endswith(".map"))
    compiled = {
        part: [_moved(place, name) for place in getattr(shipped, part).sources]
        for part in ("cuda", "cpu")
    }
    sources = {
        part: [
            *compiled[part],
            *(it for it in headers if it.startswith(f"{name}_{part}/") and _is_header(it)),
        ]
        for part in compiled
    }
    include = {
        part: ["torch-ext", *dict.fromkeys(_folder(it, name) for it in plan.include)]
        for part, plan in {"cuda": shipped.cuda, "cpu": shipped.cpu}.items()
    }
    wanted = [it.removesuffix("+PTX") for it in shipped.architectures]
    # All that the builder knows, unless a kernel needs what just one of them has.
    only = f"cuda-capabilities = {_list(wanted)}\n" if "9.0a" in wanted else ""
    cpu_flags = [flag for flag in shipped.cpu.flags if not flag.startswith("-march")]
    return f"""\
[general]
name = "{package.distribution}"
version = {package.version.partition(".")[0] if package.version[0] != "0" else 1}
edition = 5
license = "MIT"
backends = ["cpu", "cuda"]
{hub}
[torch]
src = ["torch-ext/torch_binding.cpp"]

[torch.stable-abi]
cpu = "{TARGET}"
cuda = "{TARGET}"

[kernel.{name}]
backend = "cuda"
depends = ["torch"]
include = {_list(include["cuda"])}
{only}cuda-flags = {_list(shipped.cuda.nvcc_flags)}
cxx-flags = {_list(shipped.cuda.flags)}
src = {_list(sources["cuda"])}

[kernel.{name}_cpu]
backend = "cpu"
depends = ["torch"]
include = {_list(include["cpu"])}
cxx-flags = {_list(cpu_flags)}
src = {_list(sources["cpu"])}
"""


def _folder(place: str, name: str) -> str:
    return _moved(f"{place}/", name).rstrip("/")


def _is_header(place: str) -> bool:
    return not place.endswith((".cpp", ".cu"))


def _list(values: list[str]) -> str:
    one = f"[{', '.join(map(json.dumps, values))}]"
    if len(one) < 80:
        return one
    return "[\n" + "".join(f"  {json.dumps(it)},\n" for it in values) + "]"
