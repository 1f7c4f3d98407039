"""Copies of handles and functions, and those that were pickled: they follow the same kernel."""

import copy
import io
import pickle
from pathlib import Path

import pytest
import torch
from jit_cases import answer, in_process, in_script, load, output_of, write

import jitload

pytestmark = pytest.mark.usefixtures("in_scratch")


class Layer(torch.nn.Module):
    """As people write one: a parameter, and what it calls."""

    def __init__(self, kernel: jitload.Kernel):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.kernel, self.answer = kernel, kernel.answer

    def forward(self, x):
        return x * self.weight * self.answer() * self.kernel.answer()


def averaged(layer: Layer) -> torch.nn.Module:
    return torch.optim.swa_utils.AveragedModel(layer).module


def saved(layer: Layer) -> Layer:
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def pickled(thing: object) -> object:
    return pickle.loads(pickle.dumps(thing))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, averaged, saved, pickled])
def test_a_copy_of_a_module_follows_its_kernel(copied, request):
    name = f"copied_{request.node.callspec.indices['copied']}"
    answer(2, name)
    layer = Layer(load(f"{name}.cu"))
    other = copied(layer)
    assert other.kernel is layer.kernel
    assert other(1).item() == 4
    answer(3, name)
    assert layer.kernel.reload()
    assert other(1).item() == 9
    answer("oops", name)
    with pytest.raises(jitload.CompileError):
        layer.kernel.reload()
    with pytest.raises(jitload.CompileError):
        other(1)
    assert copied(layer).kernel is layer.kernel, "it needs no build"


def test_one_build_is_kept_by_copies_and_refuses_to_be_pickled():
    answer(2, "kept")
    kernel = load("kept.cu")
    build = kernel.at()
    answer(3, "kept")
    kernel.reload()
    for copied in (copy.copy, copy.deepcopy):
        assert copied(build) is build
        assert copied(build.answer)() == 2
    with pytest.raises(TypeError, match=r"build kept_.* cannot be pickled.*: pickle the handle"):
        pickle.dumps(build)


def test_another_process_loads_what_it_unpickles():
    write("there/n.h", "#define N 5")
    source = '#include <n.h>\nextern "C" int answer() { return N + M; }'
    write("sent.cu", source)
    kernel = load("sent.cu", name="by-name", include=["there"], flags=["-DM=2"])
    Path("sent.pt").write_bytes(pickle.dumps((kernel, kernel.answer)))
    code = """
        import pickle
        kernel, function = pickle.load(open("sent.pt", "rb"))
        print(function(), kernel.answer(), function is kernel.answer, kernel.name)
        print(kernel is jitload.load(
            "sent.cu", name="by-name", target="cpu", include=["there"], flags=["-DM=2"]
        ))
    """
    assert output_of(code).split() == ["7", "7", "True", "by_name", "True"]
    write("there/n.h", "#define N 6")
    assert output_of(code).split()[:2] == ["8", "8"], "the files as they are"


def test_what_cannot_be_loaded_there_says_so():
    path = answer(1, "moved")
    kernel = load("moved.cu")
    Path("moved.pt").write_bytes(pickle.dumps(kernel))
    path.unlink()
    process = in_process('__import__("pickle").load(open("moved.pt", "rb"))')
    assert "FileNotFoundError: no source" in process.communicate(timeout=60)[1]


def test_an_op_is_unpickled_with_its_formulas():
    """By its name, wherever the project lies; the module that registered them is imported."""
    from kernels.square import kernel

    Path("square.pt").write_bytes(pickle.dumps(kernel.forward))
    assert str(jitload.KERNELS).encode() not in pickle.dumps(kernel)
    code = """
        import pickle, torch
        forward = pickle.load(open("square.pt", "rb"))
        x = torch.full((2,), 3.0, requires_grad=True)
        forward(x, 1).sum().backward()
        print(x.grad.tolist(), sys.modules["kernels.square"].kernel.forward is forward)
    """
    if kernel.target == "cpu":
        assert output_of(code) == "[6.0, 6.0] True"


def test_the_default_target_is_that_of_the_process_that_unpickles(monkeypatch):
    answer(1, "default")
    monkeypatch.setenv("JITLOAD_TARGET", "cpu")
    default = pickle.dumps(jitload.load("default.cu"))
    monkeypatch.setenv("JITLOAD_TARGET", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("jitloader.handle._kernels", {})
    with pytest.raises(RuntimeError, match='target="cuda" needs a GPU'):
        pickle.loads(default)
    monkeypatch.setenv("JITLOAD_TARGET", "cpu")
    assert pickle.loads(default).target == "cpu"


@pytest.mark.slow
def test_workers_that_are_spawned_get_modules_with_kernels():
    write(
        "spawns.py",
        """
        import multiprocessing, sys
        import jitload

        def call(function, queue):
            queue.put(function())

        if __name__ == "__main__":
            kernel = jitload.load("worker.cu", target="cpu")
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=call, args=(kernel.answer, queue))
            process.start()
            print(queue.get(timeout=60))
            process.join()
        """,
    )
    answer(4, "worker")
    out, err = in_script(Path("spawns.py")).communicate(timeout=120)
    assert out.strip() == "4", err
