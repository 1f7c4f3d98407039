"""Packages of kernels: what `python -m jitload ship` writes, builds, and says of it."""

import ast
import importlib
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import torch
from torch import Tensor

import jitload
from jitloader import autocast
from jitloader.arguments import recipe_of
from jitloader.building import readings
from lab.auditor.traps import TRAPS
from lab.ship import python_files
from lab.ship.__main__ import main
from toolchain.shipped_bindings import Names, bound, why_not_shipped

OPS = list(jitload.op_files(".cu"))


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess:
    """Python in a process that finds a package in a folder, and nothing of this project."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "JITLOAD"))}
    environment["PYTHONPATH"] = str(folder)
    command = [sys.executable, "-P", "-B", *words]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)


def shipped(to: Path, *words: str) -> Path:
    """Ship for the CPU; the folder into which the wheel is then unpacked."""
    assert main([*words, "--to", str(to), "--arch", "cpu", "--flag=-O0"]) == 0
    (wheel,) = to.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(to / "site")
    return to / "site"


@pytest.fixture(scope="module")
def square(made_once) -> Path:
    return made_once("shipped square", lambda to: shipped(to, "square")) / "site"


USE = """
import torch
from square import square
assert not [name for name in __import__("sys").modules if "jitload" in name]
x = torch.randn(3, 40, requires_grad=True)
y = torch.compile(square, fullgraph=True, backend="aot_eager")(x)
y.sum().backward()
assert torch.equal(y, x * x) and torch.equal(x.grad, 2 * x)
assert torch.autograd.gradgradcheck(square, x.detach().double()[:1, :3].requires_grad_())
torch.library.opcheck(torch.ops.square.forward.default, (x.detach(), 1))
try:
    square(x.int())
except RuntimeError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.longest  # these three share what takes half a minute to make
def test_a_package_needs_nothing_of_this_project(square: Path):
    done = ran(square, "-c", USE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "x is int32; wanted is float64, float32, float16 or bfloat16\n"


@pytest.mark.slow
@pytest.mark.longest
def test_its_wheel_fits_later_releases_and_lacks_other_peoples_libraries(square: Path):
    (wheel,) = square.parent.glob("*.whl")
    assert "-cp311-abi3-" in wheel.name
    (library,) = square.rglob("*.so")
    assert library.name == "_square_cpu.abi3.so"
    text = (square / "square/csrc/kernels.json").read_text()
    assert json.loads(text)["architectures"] == ["8.0", "9.0", "10.0", "12.0+PTX"]
    assert not re.search(r"-march=native|/home|/tmp|/root", text)


@pytest.mark.slow
@pytest.mark.longest
def test_verify_repeats_the_proof_and_sees_a_changed_file(square: Path):
    same = ran(square, "-m", "square.verify")
    assert same.returncode == 0, same.stdout + same.stderr
    proof = json.loads((square / "square/proof.json").read_text())
    assert len(proof["errors"]) == 32
    assert [check["findings"] for check in proof["checks"]] == [0] * 4
    (audit,) = proof["audits"]
    assert (audit["op"], audit["ok"]) == ("square", True)
    assert sum(audit["counts"].values()) == len(TRAPS)
    page = (square / "square/PROOF.md").read_text().partition("## Audited")[2]
    assert all(f"- {it['verdict']}, {it['trap']}: {it['said']}" in page for it in audit["rows"])
    assert proof["bench"]
    changed = square / "square/ops/square.py"
    text = changed.read_text()
    try:
        changed.write_text(text.replace("version_number(version, VERSIONS)", "0"))
        done = ran(square, "-m", "square.verify")
    finally:
        changed.write_text(text)
    assert done.returncode == 1
    assert "DIFFERS: ops/square.py is not the file that was recorded" in done.stdout


# ---- the Python of every op


COPIES = python_files.COPIES | python_files.COPIES_FOR_C


@pytest.mark.parametrize("source", COPIES.values())
def test_what_a_package_copies_imports_nothing_of_this_project(source: str):
    tree = ast.parse(python_files.copy(source, "mine"))
    names = [
        it.name for node in ast.walk(tree) if isinstance(node, ast.Import) for it in node.names
    ]
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [node.module for node in froms if not node.level]
    ours = {path.stem for path in jitload.KERNELS.parent.iterdir()}
    assert not [name for name in names if name.partition(".")[0] in ours]
    own = [node.module or it.name for node in froms if node.level for it in node.names]
    assert {f"{name}.py" for name in own} <= COPIES.keys()


@pytest.mark.parametrize("op", OPS)
def test_an_ops_python_keeps_its_formulas_and_loses_the_loader(op: str):
    path = jitload.op_file(op, ".py")
    text = python_files.op_file(path, f'Kernel("{op}", "{op}", ("forward",))')
    tree = ast.parse(text)
    assert "jitload" not in text
    assert not re.search(r"(?m)^from kernels|^import kernels", text)
    was = ast.parse(path.read_text())
    kept = [ast.dump(n) for n in tree.body if isinstance(n, ast.FunctionDef)]
    assert kept == [ast.dump(n) for n in was.body if isinstance(n, ast.FunctionDef)]
    helpers = python_files.helpers_file(python_files.helpers_of(path))
    assert python_files.helpers_of(path) <= python_files._functions(helpers) | {"SCALINGS"}
    exec(compile(helpers, "helpers.py", "exec"), {})


@pytest.mark.parametrize("op", sorted(python_files.references(OPS)))
def test_an_ops_truth_stands_alone(op: str):
    namespace: dict = {"__name__": "truth"}
    sys.modules["truth"] = sys  # dataclasses look their module up
    try:
        exec(compile(python_files.reference_file({op}), "truth.py", "exec"), namespace)
    finally:
        del sys.modules["truth"]
    assert set(namespace["OPS"]) <= {op}
    assert callable(namespace[op])


def test_python_that_uses_more_of_the_loader_is_refused(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text('import jitload\nkernel = jitload.load("mine.cu")\njitload.device()\n')
    with pytest.raises(ValueError, match=r"mine.py:3: a package has no jitload.device"):
        python_files.op_file(file, "Kernel()")


STAND_IN = """
operators = lambda kernel, namespace: namespace
why_no_gpu = lambda kernel: ""
"""


@pytest.mark.parametrize("keep", [(), ("last",)], ids=["all", "but_last"])
@pytest.mark.parametrize("policy", autocast.AUTOCAST_POLICIES)
def test_autocast_casts_as_it_does_here(policy: str, keep: tuple[str, ...], tmp_path, monkeypatch):
    name = f"cast_{policy}_{len(keep)}"
    package = tmp_path / name
    package.mkdir()
    (package / "kernel.py").write_text(python_files.template("kernel.py", name))
    (package / "gradient_text.py").write_text(python_files.copy("jitloader/gradient_text.py", name))
    (package / "libraries.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(f"{name}.kernel")
    seen = []

    def noted(*tensors: Tensor | None) -> Tensor:
        seen.append([t.dtype for t in tensors if t is not None])
        return torch.empty(1)

    library = torch.library.Library(name, "DEF")
    for op in ("here", "there"):
        library.define(f"{op}(Tensor x, Tensor? w, Tensor number, Tensor last) -> Tensor")
        library.impl(op, noted, "CPU")
    here, there = (getattr(torch.ops, name).here.default, getattr(torch.ops, name).there.default)
    autocast.register_autocast(here, here, policy, keep)
    shipped = module.Kernel("any", name, ("there",))
    shipped.register_autocast("there", keep, policy)
    types = torch.float16, torch.float32, torch.float64
    for x, w, last in itertools.product(types, (None, *types), types):
        given = [
            None if it is None else torch.empty(1, dtype=it) for it in (x, w, torch.int32, last)
        ]
        with torch.autocast("cpu", torch.bfloat16):
            here(*given)
            there(*given)
        assert seen[-2] == seen[-1], (x, w, last)
    assert len({tuple(it) for it in seen}) > 1


# ---- kernel-builder


def test_build_toml_is_as_kernel_builder_documents_it(tmp_path: Path):
    words = ["layer_norm", "--to", str(tmp_path), "--no-wheel", "--hub", "somebody/layer-norm"]
    assert main(words) == 0
    folder = tmp_path / "layer_norm-hub"
    build = tomllib.loads((folder / "build.toml").read_text())
    assert_valid(build)
    assert build["general"]["name"] == "layer-norm"
    assert (folder / "torch-ext/layer_norm/__init__.py").is_file()
    for kernel in build["kernel"].values():
        for source in kernel["src"]:
            assert (folder / source).is_file(), source
        assert all((folder / place).is_dir() for place in kernel["include"])
    binding = (folder / "layer_norm_cuda/layer_norm_binding.cpp").read_text()
    assert "STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m)" in binding
    assert "STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, m)" in binding


# Edition 5 of build.toml, as its documentation tells it: key: type, and * where it must be there.
TEXT, TEXTS = str, [str]
GENERAL = {
    "name*": TEXT,
    "version*": int,
    "edition*": int,
    "license*": TEXT,
    "backends*": TEXTS,
    "upstream": TEXT,
    "source": TEXT,
    "python-depends": TEXTS,
    "hub": {"repo-id": TEXT},
}
TORCH = {
    "src*": TEXTS,
    "include": TEXTS,
    "pyext": TEXTS,
    "minver": TEXT,
    "maxver": TEXT,
    "stable-abi": {"cpu": TEXT, "cuda": TEXT},
}
SHARED = {"backend*": TEXT, "depends*": TEXTS, "src*": TEXTS, "include": TEXTS, "cxx-flags": TEXTS}
KERNEL = {
    "cpu": SHARED,
    "cuda": SHARED | {"cuda-capabilities": TEXTS, "cuda-flags": TEXTS},
}


def assert_valid(build: dict) -> None:
    assert set(build) == {"general", "torch", "kernel"}
    follows(build["general"], GENERAL)
    follows(build["torch"], TORCH)
    assert build["general"]["edition"] == 5
    assert re.fullmatch(r"[a-z][-a-z0-9]*[a-z0-9]", build["general"]["name"])
    assert {k["backend"] for k in build["kernel"].values()} == set(build["general"]["backends"])
    for kernel in build["kernel"].values():
        follows(kernel, KERNEL[kernel["backend"]])
        assert kernel["depends"] == ["torch"]


def follows(table: dict, schema: dict) -> None:
    types = {name.rstrip("*"): wanted for name, wanted in schema.items()}
    assert table.keys() <= types.keys()
    assert {name[:-1] for name in schema if name.endswith("*")} <= table.keys()
    for name, value in table.items():
        wanted = types[name]
        if isinstance(wanted, dict):
            follows(value, wanted)
        elif isinstance(wanted, list):
            assert all(isinstance(it, str) for it in value), name
        else:
            assert isinstance(value, wanted), name


# ---- anybody's kernels

SIGMOID = """
#define lane 1
#include <cuda_fp16.h>
__global__ void sigmoid(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = lane / (1 + expf(-x[i]));
}
"""
USE_SIGMOID = """
import torch
from mine import sigmoid as kernel

def sigmoid(x):
    y = torch.empty_like(x)
    kernel.sigmoid[(x.numel() + 255) // 256, 256](x, y, x.numel())
    return y

x = torch.randn(1000)
for call in sigmoid, torch.compile(sigmoid, fullgraph=True, backend="aot_eager"):
    torch.testing.assert_close(call(x), torch.sigmoid(x))
"""


@pytest.mark.slow
def test_a_cell_of_a_notebook_whose_kernel_has_no_binding(tmp_path: Path):
    notebook = tmp_path / "mine.ipynb"
    cell = {"cell_type": "code", "source": ["%%cu sigmoid\n", SIGMOID]}
    notebook.write_text(json.dumps({"cells": [cell]}))
    site = shipped(tmp_path / "to", f"{notebook}:sigmoid", "--package", "mine")
    done = ran(site, "-c", USE_SIGMOID)
    assert done.returncode == 0, done.stderr
    assert ran(site, "-m", "mine.verify").returncode == 0


# What strangers write: functions for one device, for every device, and one for each.
BINDING = """\
TORCH_LIBRARY(theirs, m) {
    m.def("clip(Tensor x, int n) -> (Tensor, Tensor)");
    m.impl("clip", c10::kCUDA, &clip);
    m.def("both(Tensor x) -> Tensor");
    m.impl("both", c10::DispatchKey::CUDA, TORCH_FN(on_gpus));
    m.impl("both", c10::DispatchKey::CPU, TORCH_FN(on_the_cpu));
    m.def("any(Tensor x) -> Tensor", &any<float, 4>);
}
"""
OF_THE_CPU = """\
TORCH_LIBRARY(theirs, m) {
    m.def("clip(Tensor x, int n) -> (Tensor, Tensor)");
    m.impl("clip", c10::kCUDA, &clip);
    m.def("both(Tensor x) -> Tensor");
    m.impl("both", c10::DispatchKey::CPU, TORCH_FN(on_the_cpu));
    m.def("any(Tensor x) -> Tensor", &any<float, 4>);
}
"""
OF_GPUS = """\
TORCH_LIBRARY_FRAGMENT(theirs, m) {
    m.impl("clip", c10::kCUDA, &clip);
    m.impl("both", c10::DispatchKey::CUDA, TORCH_FN(on_gpus));
    m.impl("any", torch::dispatch(c10::DispatchKey::CUDA, &any<float, 4>));\
 m.impl("any", torch::dispatch(c10::DispatchKey::AutogradCUDA, &any<float, 4>));
}
"""


def test_each_part_has_its_share_of_a_binding(tmp_path: Path):
    source = tmp_path / "theirs.cpp"
    source.write_text(BINDING)
    code = next(readings(recipe_of([source], None, "cpu", (), (), debug=False)))
    assert why_not_shipped(code) == ""
    for part, wanted in {"cpu": OF_THE_CPU, "cuda": OF_GPUS}.items():
        text = bound(code, source, part, Names("theirs", defines=part == "cpu"))
        assert [line for line in text.splitlines() if line.strip()] == wanted.splitlines()


SCALE = """
#include <torch/csrc/utils/pybind.h>
#include <ATen/ops/empty_like.h>

__global__ void scale_kernel(const float* x, float* y, float factor, int64_t n) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * factor;
}

at::Tensor scale(const at::Tensor& x, double factor) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    at::Tensor y = at::empty_like(x);
    int64_t n = x.numel();
    scale_kernel<<<(n + 255) / 256, 256>>>(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(),
                                           float(factor), n);
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("scale", &scale, pybind11::arg("x"), pybind11::arg("factor") = 2.0);
}
"""
TRUTH = """
from torch import Tensor

from reference import op


@op(x="rows cols")
def scale(x: Tensor) -> Tensor:
    return 2 * x
"""


@pytest.mark.slow
def test_a_module_of_pybind11(tmp_path: Path):
    (tmp_path / "scale.cu").write_text(SCALE)
    (tmp_path / "truth.py").write_text(TRUTH)
    words = [str(tmp_path / "scale.cu"), "--reference", str(tmp_path / "truth.py")]
    site = shipped(tmp_path / "to", *words)
    use = "import scale, torch; print(scale.scale(factor=3, x=torch.ones(2)).tolist())"
    done = ran(site, "-c", use)
    assert done.stdout == "[3.0, 3.0]\n", done.stderr
    proof = json.loads((site / "scale/proof.json").read_text())
    tried = {(line["case"]["dtype"], line["case"]["direction"]) for line in proof["errors"]}
    assert tried == {("float32", "forward")}
    assert ran(site, "-m", "scale.verify").returncode == 0


CLASS = 'PYBIND11_MODULE(m, m) {\n    py::class_<Plan>(m, "Plan").def(py::init<>());\n}\n'
TWO_KINDS = "PYBIND11_MODULE(m, m) {}\nTORCH_LIBRARY(theirs, m) {}\n"
NOT_THERE = 'TORCH_LIBRARY(theirs, m) {\n    m.def("f(Tensor x) -> Tensor");\n}\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (CLASS, r"registers a class of C\+\+ with Python, at \S+mine.cpp:2"),
        (TWO_KINDS, "has PYBIND11_MODULE and TORCH_LIBRARY"),
        (NOT_THERE, "has nothing that implements f for CUDA"),
    ],
)
def test_a_binding_of_which_no_two_parts_can_be_is_told(text: str, told: str, tmp_path, capsys):
    (tmp_path / "mine.cpp").write_text(text)
    assert main([str(tmp_path / "mine.cpp"), "--to", str(tmp_path / "to"), "--no-wheel"]) == 1
    assert re.search(told, capsys.readouterr().err)


def test_what_cannot_be_shipped_is_told(tmp_path: Path, capsys):
    notebook = tmp_path / "mine.ipynb"
    notebook.write_text(json.dumps({"cells": []}))
    (tmp_path / "square").mkdir()
    (tmp_path / "square/own.txt").write_text("mine")
    for words, told in {
        ("no_such_op",): "no op 'no_such_op'",
        ("square", "relu"): "--package NAME",
        ("square", "--package", "My-Ops"): "a package cannot be called 'My-Ops'",
        (f"{notebook}:sigmoid",): "has no cell %%cu sigmoid; it has: none",
        ("square",): "no package that this has written",
    }.items():
        assert main([*words, "--to", str(tmp_path), "--no-wheel"]) == 1, words
        assert told in capsys.readouterr().err
    assert (tmp_path / "square/own.txt").read_text() == "mine"
