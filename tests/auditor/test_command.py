"""`python -m lab audit`, %%audit, and what they show."""

import json
import os
import time
from contextlib import contextmanager

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

import jitload
import lab
from kernels.square import square
from lab.auditor.command import inputs_of, main


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("module", ["kernels.square", "kernels.elementwise.relu"])
def test_an_op_of_ours_needs_its_name_alone(capsys, module):
    name = module.rpartition(".")[2]
    assert main([f"{module}:{name}", "--only", "layouts", "--seed", "3"]) == 0
    assert f"audit of {module}.{name}: no trap" in capsys.readouterr().out


@pytest.mark.parametrize("shape", [(7,), (2, 3, 5)])
def test_an_op_of_ours_with_an_example_of_another_rank(shape):
    x = torch.ones(shape)
    report = lab.audit(square, x, only=["shapes", "empty"], isolated=False)
    assert {row.verdict for row in report.rows} == {"ok"}, str(report)


def test_json_and_a_page(tmp_path, capsys, monkeypatch):
    (tmp_path / "audited.py").write_text(
        "def half(x): return x * 0.49\ndef truth(x): return x / 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    page = tmp_path / "page.html"
    words = ["audited:half", "--reference", "audited:truth", "float32[4, 8]", "--json"]
    assert main([*words, "--only", "error", "empty", "--html", str(page)]) == 1
    said = json.loads(capsys.readouterr().out)
    assert not said["ok"]
    assert [row["verdict"] for row in said["rows"]] == ["FAIL", "ok"]
    assert said["rows"][0]["example"] == "x=float32[4, 8]"
    assert "output is off by" in page.read_text()
    assert "prefers-color-scheme: dark" in page.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["square"], "wanted is MODULE:FUNCTION"),
        (["torch:relu"], "reference: wanted is a function"),
        (["torch:relu", "--reference", "torch:relu"], "inputs: wanted are the arguments"),
        (["torch:relu", "float9[3]", "--reference", "torch:relu"], "no type 'float9'"),
        (["torch:relu", "float32[3]", "--reference", "torch:mm"], "the reference fails"),
        (["kernels.square:square", "--only", "nonsense"], "there is no trap 'nonsense'"),
        (["no_such_module:f"], "no_such_module"),
    ],
)
def test_wrong_use_says_what_is_wanted(words, said, capsys):
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_the_checker_is_compiled_beside_the_ops_module(monkeypatch):
    """It takes the longest of all that an empty cache lacks."""
    begun = []
    monkeypatch.setattr(jitload, "default_target", lambda: "cpu")
    monkeypatch.setattr(jitload, "build_simulator_beside", lambda **it: begun.append(it))
    monkeypatch.setattr("lab.auditor.command.resolved", lambda name: begun.append(name))
    assert main(["my.ops:f"]) == 2
    assert begun == [{"with_checker": True}, "my.ops:f"]


def test_a_module_and_an_example_that_fail_are_wrong_use(tmp_path, capsys, monkeypatch):
    """An exit status of 1 would say that the op falls into a trap."""
    (tmp_path / "ends.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "right.py").write_text("def example(): return 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    for words, said in {
        ("ends:f",): "ends: its import raises SystemExit",
        ("broken:f",): "broken: its import raises SyntaxError",
        ("torch:relu", "right:example"): "right:example raises ZeroDivisionError",
    }.items():
        assert main([*words]) == 2
        assert said in capsys.readouterr().err


def test_a_page_that_cannot_be_written_loses_no_result(tmp_path, capsys):
    words = ["torch:relu", "--reference", "torch:relu", "float32[4]", "--only", "empty"]
    assert main([*words, "--html", str(tmp_path / "none/page.html")]) == 2
    said = capsys.readouterr()
    assert "audit of" in said.out
    assert "--html: " in said.err


def test_arguments():
    x, index, eps = inputs_of(["float16[2, 3]", "int64[5] < 3", "1e-5"], 0)
    assert (x.dtype, tuple(x.shape), eps) == (torch.float16, (2, 3), 1e-5)
    assert index.max() < 3


@pytest.fixture(scope="module")
def shell():
    shell = InteractiveShell.instance()
    lab.load_ipython_extension(shell)
    yield shell
    lab.unload_ipython_extension(shell)
    InteractiveShell.clear_instance()


@pytest.mark.usefixtures("forked")
def test_the_magic(shell):
    cell = "import torch\nx = torch.ones(3, 4)\ntorch.relu(x)"
    report = shell.run_cell_magic("audit", "--reference torch.relu --only layouts", cell)
    assert report.ok
    assert {row.section for row in report.rows} == {"layouts"}
    assert shell.user_ns["x"].shape == (3, 4)
    assert "<table" in report._repr_html_()


def test_the_same_rows_for_the_same_seed():
    reports = [
        lab.audit(
            torch.relu,
            torch.ones(3, 4),
            reference=torch.relu,
            isolated=False,
            only=["error", "empty", "special values"],
            seed=5,
        ).as_dict()
        for _ in range(2)
    ]
    for report in reports:
        for row in report["rows"]:
            row.pop("seconds")
    assert reports[0] == reports[1]


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("isolated", [True, False])
def test_progress_names_each_trap(isolated, monkeypatch):
    """A bar is shown, in a terminal and in a notebook: one step a trap."""
    steps = []

    @contextmanager
    def progress(total):
        steps.append(total)
        yield steps.append

    monkeypatch.setattr("lab.auditor.run.progress", progress)
    traps = ["empty", "opcheck"]
    lab.audit(torch.relu, torch.ones(4), reference=torch.relu, only=traps, isolated=isolated)
    assert steps == [2, "numbers/empty", "PyTorch/opcheck"]


def test_the_traps_that_compile_are_tried_beside_the_others(tmp_path):
    """Each of the two processes waits until the other has begun to call the op."""

    def waiting(x: torch.Tensor) -> torch.Tensor:
        mark = tmp_path / str(os.getpid())
        if not mark.exists():
            mark.touch()
        while len(list(tmp_path.iterdir())) < 2:
            if time.time() > mark.stat().st_mtime + 200:
                raise RuntimeError("no other process has called it")
            time.sleep(0.01)
        return x.relu()

    traps = ["races", "empty"]
    report = lab.audit(waiting, torch.ones(4), reference=torch.relu, only=traps)
    assert [row.name for row in report.rows] == ["empty", "races"]
    assert report.row("empty").verdict == "ok", str(report)
    assert "no kernel" in report.row("races").message
