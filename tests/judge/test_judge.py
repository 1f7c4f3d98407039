"""The judge: controls are accepted, and no exploit is, with the gate or without it."""

import json
import os
import secrets
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from controls import OF_TASKS, UNUSUAL, UNUSUAL_OF_TASKS
from exploits import CONTROLS, EXPLOITS, submission
from hostile import ANSWERS, FOR_A_GPU, LIBRARIES, SOURCES
from published import PUBLISHED
from runtime_controls import BY_THE_RUNTIME

import jitload
import reference
from lab.auditor.cases import LARGE_SIZES, SIZES
from lab.judge import gate, gate_library
from lab.judge.command import main
from lab.judge.run import _Work, judge
from lab.judge.sandbox import _TOOLS, Sandbox, end
from lab.judge.task import Task

# Those that the gate lets pass: their answers are wrong, or they are not safe.
WRONG = {
    *("zeros", "nothing", "inputs_returned", "part_of_the_rows", "neighbours_copied"),
    *("fewer_digits", "answer_in_memory", "input_changed", "out_of_bounds", "race_with_luck"),
    *("endless", "default_stream", "infinity_dropped", "op_found_by_its_argument"),
    *("op_of_pytorchs_by_method", "op_writes_by_type"),  # the library tells
    *("host_computes", "large_call_in_part"),
}
# With the gate off, one of each kind of behaviour is judged. The others differ from these by what
# they reach for, and not by their answers, or are those above; all were judged so, and refused.
KINDS = {
    *("result_cached", "cached_by_address", "warm_up_seen", "lazy_stream", "graph_replayed"),
    *("thread_writes_later", "constructor", "fork", "exit_0", "forged_answer", "python_called"),
    *("system_call", "memory_taken", "aes_key_recovery", "fd_overwrite", "function_detour"),
    *("pipe_interpose", "proc_mem_bypass", "seccomp_trap", "thread_fd", "replay_of_a_file"),
    *("deferred_to_the_checker", "canary_make_writeable"),
}


def written(folder, name: str, text: str):
    path = folder / f"{name}.cu"
    path.write_text(text)
    return path


RIGHT = CONTROLS | UNUSUAL | BY_THE_RUNTIME | UNUSUAL_OF_TASKS
TOLD = EXPLOITS | PUBLISHED | SOURCES


@pytest.mark.parametrize("name", RIGHT)
def test_the_gate_lets_right_ones_pass(name):
    assert gate.source(RIGHT[name]) == []


@pytest.mark.parametrize("name", sorted(TOLD.keys() - WRONG))
def test_the_gate_names_what_an_exploit_does(tmp_path, name):
    text = TOLD[name]
    found = gate.source(text)
    assert found, name
    assert all(it["line"] >= 1 for it in found)
    verdict = judge("square", written(tmp_path, name, text))
    assert (verdict.verdict, verdict.stage) == ("rejected", "gate")


@pytest.mark.parametrize(
    "before",
    [
        "__device__ float read(const float* x, int i) { return x[i]; }\n"
        "__device__ float again(const float* x) { return read(x, 0); }\n",
        "constexpr int64_t kMost = int64_t(1) << 26;\nconst int kHalf = int(kMost) / 2;\n",
        "static const float kOnes[2] = {1, 1};\n"
        "namespace mine {\nconst float* const kNone = 0;\n}\n",
        '__device__ int lane() { int i; asm("mov.u32 %0, %%laneid;" : "=r"(i)); return i; }\n'
        "__device__ void keep(const float* x) {"
        ' asm volatile("prefetch.global.L2 [%0];" :: "l"(x)); }\n',
        "struct Tile { static constexpr int kRows = 4; int rows; };\n"
        "template <class T> static T twice(T x) { return x + x; }\n"
        "static int three() { return 3; }\n",
    ],
    ids=["read", "constants", "tables", "ptx", "structs"],
)
def test_the_gate_lets_ordinary_code_pass(before):
    assert gate.source(submission(before=before)) == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("syscall", 0),
        ("time", 0),
        ("abort", 0),
        ("write", 1),
        ("getenv", 1),
    ],
)
def test_what_an_op_may_import(monkeypatch, tmp_path, name, kind):
    """What PyTorch's own headers call is no sign of a cheat."""
    monkeypatch.setattr(gate_library, "_undefined", lambda path: [name, "strlen"])
    monkeypatch.setattr(gate_library, "_said", lambda command: "")
    assert len(gate_library.library(tmp_path / "any.so", CONTROLS["op"])) == kind


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)", True),
        ("at::_ops::copy_::call(at::Tensor&, at::Tensor const&, bool)", True),
        ("c10::Dispatcher::findSchemaOrThrow(char const*, char const*)", True),
        ("at::native::mul_out(at::Tensor&, at::Tensor const&)", True),
        ("at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)", False),
        ("float* at::TensorBase::data_ptr<float>() const", False),
        ("c10::detail::torchCheckFail(char const*, char const*, unsigned int)", False),
        ("torch::Library::_impl(char const*, torch::CppFunction&&) &", False),
        ("std::ostream& c10::operator<<(std::ostream&, c10::ScalarType)", False),
        ("vtable for torch::autograd::Node", False),
        ("simulator::launch(dim3, dim3)", False),
    ],
)
def test_what_computes_is_told_from_what_takes_a_tensor_apart(name, called):
    assert bool(gate_library.computes(name)) == called


@pytest.mark.slow
def test_an_op_of_pytorchs_is_told_with_its_line(tmp_path):
    name = "op_of_pytorchs_by_method"
    verdict = judge("square", written(tmp_path, name, EXPLOITS[name]))
    assert (verdict.verdict, verdict.stage) == ("rejected", "build")
    assert {it["kind"] for it in verdict.findings} == {"PyTorch"}
    line = EXPLOITS[name][: EXPLOITS[name].index("y.copy_")].count("\n") + 1
    assert line in [it["line"] for it in verdict.findings]


def judged(folder, texts: dict[str, str], **options) -> dict:
    def one(name: str):
        return name, judge(
            *("square", written(folder, name, texts[name])),
            **{"cases": 8, "seconds": 60, "memory": 2 << 30, "seed": 0} | options,
        )

    with ThreadPoolExecutor(2) as jobs:
        return dict(jobs.map(one, texts))


def test_one_that_is_right_and_two_that_are_not(tmp_path):
    names = ("plain", "part_of_the_rows", "default_stream")
    found = judged(tmp_path, {n: (CONTROLS | EXPLOITS)[n] for n in names})
    plain, part, stream = found.values()
    assert plain.accepted, str(plain)
    assert plain.cases == 8
    assert all(it["fetched"] >= it["floor"] for it in plain.traffic)
    assert (part.verdict, part.stage) == ("rejected", "right")
    assert "cols" in part.findings[0]["message"]
    assert (stream.stage, stream.findings[0]["kind"]) == ("safe", "audit: stream")
    assert stream.findings[0]["line"] == 11
    assert plain.time["clock"] == "predicted" or torch.cuda.is_available()
    assert plain.time["floor"] < plain.time["seconds"] < 1e-3
    assert plain.sandbox["kind"] == Sandbox.here().kind


@pytest.mark.parametrize(
    ("name", "stage", "kind"),
    [
        ("host_computes", "safe", "host access"),
        ("host_computes_kernel_copies", "safe", "host access"),
        ("copied_as_between_devices", "safe", "host copy"),
        ("large_call_in_part", "right", "wrong"),
    ],
)
def test_work_that_is_left_out(tmp_path, name, stage, kind):
    (found,) = judged(tmp_path, {name: (EXPLOITS | ANSWERS)[name]}).values()
    assert (found.verdict, found.stage) == ("rejected", stage), str(found)
    assert found.findings[0]["kind"] == kind


@pytest.mark.slow
def test_what_a_source_hides_the_library_tells(tmp_path):
    found = judged(tmp_path, LIBRARIES)
    assert {(it.verdict, it.stage) for it in found.values()} == {("rejected", "build")}


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
def test_what_only_the_library_for_a_gpu_tells(tmp_path, monkeypatch):
    """Its compiler may see what the simulator's does not."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    found = {}
    for name, text in {"hidden": FOR_A_GPU, "plain": CONTROLS["plain"]}.items():
        assert gate.source(text) == []
        built = jitload.ensure(written(tmp_path, name, text), target="cuda")
        found[name] = [it["message"] for it in gate_library.asked(Path(built.library), text)]
    assert found == {"hidden": ["it calls system"], "plain": []}


@pytest.mark.slow
def test_what_neither_tells_is_wrong_or_unsafe(tmp_path):
    found = judged(tmp_path, ANSWERS, cases=24)
    assert [name for name, it in found.items() if it.accepted] == []
    assert all(it.stage in ("right", "safe") for it in found.values())


@pytest.mark.slow
def test_all_controls_are_accepted(tmp_path):
    found = judged(tmp_path, CONTROLS | UNUSUAL | BY_THE_RUNTIME)
    assert all(it.accepted for it in found.values()), "\n".join(map(str, found.values()))


@pytest.mark.slow
@pytest.mark.parametrize(("task", "text"), [*OF_TASKS.items(), *UNUSUAL_OF_TASKS.items()])
def test_controls_of_other_tasks_are_accepted(tmp_path, task, text):
    verdict = judge(task, written(tmp_path, task, text), cases=12, seed=0)
    assert verdict.accepted, str(verdict)


TOOLS = {"bubblewrap": ("bwrap",), "namespaces": _TOOLS}
confined = pytest.mark.skipif(Sandbox.here().kind == "limits", reason="needs a sandbox")


@pytest.mark.slow
@pytest.mark.parametrize("gated", [True, pytest.param(False, marks=confined)])
def test_no_exploit_is_accepted(tmp_path, gated):
    """Without the gate what cheats is found by its answers, or by what it does."""
    every = EXPLOITS | PUBLISHED
    found = judged(
        tmp_path, {n: every[n] for n in (WRONG if gated else KINDS)}, gated=gated, seconds=5
    )
    assert [name for name, it in found.items() if it.accepted] == []
    assert all(it.findings for it in found.values())


@pytest.mark.parametrize("name", ["matmul", "attention", "layer_norm"])
def test_sizes_are_not_only_those_of_a_list(name):
    task = Task.of(name)
    drawn = [sizes for sizes, _ in task.cases(5, 40)]
    for letter in task.letters:
        assert {it[letter] for it in drawn[6:]} - set(SIZES + LARGE_SIZES), letter


def test_the_same_seed_draws_the_same_and_by_default_it_is_a_fresh_one(tmp_path):
    file = written(tmp_path, "fork", EXPLOITS["fork"])
    assert judge("square", file).seed != judge("square", file).seed
    assert judge("square", file, seed=7).as_dict() == judge("square", file, seed=7).as_dict()


# ---- tasks


def test_a_task_of_a_file(tmp_path):
    path = tmp_path / "scale.py"
    path.write_text(
        "from reference import op\n\n"
        '@op(x="rows cols", weight="cols")\ndef scale(x, weight):\n    return x * weight\n'
    )
    before = dict(reference.OPS)
    task = Task.of(str(path))
    assert before == reference.OPS
    assert task.signature() == (
        'extern "C" cudaError_t launch(const float* x, const float* weight, float* y,'
        " int64_t rows, int64_t cols, cudaStream_t stream)"
    )
    assert task.cases(3, 12) == task.cases(3, 12) != task.cases(4, 12)
    first, second = task.cases(3, 12)[:2]
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert torch.equal(
        task.draw(*first[:1], torch.float32, 5)["x"], task.draw(*first[:1], torch.float32, 5)["x"]
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit", "SystemExit"),
        ("def scale(:", "SyntaxError"),
        ('@op(x="rows cols")\ndef scale(x):\n    return None', "returns NoneType"),
        ('@op(x="rows cols")\ndef scale(x):\n    return x.numpy()', "returns ndarray"),
        ('@op(x="rows cols")\ndef scale(x):\n    return x @ x', "fails on what is drawn for it"),
    ],
)
def test_a_task_that_is_none(tmp_path, capsys, body, said):
    path = tmp_path / "scale.py"
    path.write_text(f"from reference import op\n\n{body}\n")
    assert main([str(path), "--signature"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", [*reference.OPS])
def test_every_op_is_a_task(name):
    task = Task.of(name)
    assert task.signature().startswith('extern "C" cudaError_t launch(const ')


# ---- the command


def test_wrong_use_and_a_table(tmp_path, capsys):
    assert main(["no_such_task", "x.cu"]) == 2
    assert main(["square", str(tmp_path / "none.cu")]) == 2
    assert main(["square", "--cases", "0", __file__]) == 2
    capsys.readouterr()
    assert main(["square", "--signature"]) == 0
    assert "launch(const float* x, float* y, int64_t rows" in capsys.readouterr().out
    files = [str(written(tmp_path, n, EXPLOITS[n])) for n in ("fork", "system")]
    assert main(["square", *files]) == 1
    said = capsys.readouterr().out
    assert "fork.cu" in said
    assert "first finding" in said
    assert main(["square", *files, "--json"]) == 1
    lines = [json.loads(it) for it in capsys.readouterr().out.splitlines()]
    assert [it["verdict"] for it in lines] == ["rejected"] * 2
    kinds = {it["kind"] for it in lines[1]["findings"]}
    assert "processes" in kinds


def test_what_does_not_compile_is_told_with_its_line(tmp_path):
    verdict = judge("square", written(tmp_path, "broken", submission("int k = ;")), cases=2)
    assert (verdict.stage, verdict.accepted) == ("build", False)
    assert verdict.findings[0]["line"] == 11


@pytest.mark.parametrize("kind", ["bubblewrap", "namespaces"])
def test_the_sandbox_has_no_network_and_no_other_files(tmp_path, kind):
    box = Sandbox(kind)
    if not all(map(shutil.which, TOOLS[kind])) or not box.works():
        pytest.skip(f"{kind} may not be made here")
    mine, secret = tmp_path / "mine", tmp_path / "secret"
    mine.mkdir()
    secret.write_text("of somebody else")
    code = (
        "import os, socket\n"
        f"print(os.path.exists({str(secret)!r}) or os.path.exists('/home'),"
        " os.path.exists('/etc/passwd'))\n"
        "try: socket.create_connection(('1.1.1.1', 53), 1); print('network')\n"
        "except OSError: print('none')\n"
        "print(len([p for p in os.listdir('/proc') if p.isdigit()]))\n"
        "try: open('/usr/mine', 'w'); print('written')\n"
        "except OSError: print('none')\n"
        "print([it for it in open('/proc/self/status') if it.startswith('CapEff')])\n"
        "open('mine', 'w').write('here')\n"
    )
    process = box.start([sys.executable, "-c", code], mine)
    out, _ = process.communicate(timeout=60)
    lines = out.decode().split("\n")
    assert lines[:2] == ["False False", "none"], (mine / "errors").read_text()
    assert int(lines[2]) <= 3
    assert lines[3:5] == ["none", "['CapEff:\\t0000000000000000\\n']"]
    assert (mine / "mine").read_text() == "here"


@pytest.mark.parametrize("kind", ["bubblewrap", "namespaces"])
def test_a_compiler_of_its_own_folder_is_there(tmp_path, monkeypatch, kind):
    """As /opt/gcc/bin/g++: only the system's folders were."""
    box = Sandbox(kind)
    if not all(map(shutil.which, TOOLS[kind])) or not box.works():
        pytest.skip(f"{kind} may not be made here")
    compiler, mine = tmp_path / "gcc/bin/g++", tmp_path / "mine"
    compiler.parent.mkdir(parents=True)
    mine.mkdir()
    compiler.write_text("#!/bin/sh\necho mine\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{compiler.parent}:{os.environ['PATH']}")
    process = box.start(["g++"], mine)
    assert process.communicate(timeout=60)[0] == b"mine\n", (mine / "errors").read_text()


@pytest.mark.parametrize("kind", ["bubblewrap", "namespaces"])
def test_what_a_sandbox_starts_ends_with_it(tmp_path, kind):
    box = Sandbox(kind)
    if not all(map(shutil.which, TOOLS[kind])) or not box.works():
        pytest.skip(f"{kind} may not be made here")
    mark = f"4711.{secrets.randbits(64)}"
    process = box.start(["sh", "-c", f"sleep {mark} & echo; wait"], tmp_path)
    process.stdout.readline()
    end(process)
    until = time.monotonic() + 60  # the kernel ends the others in its own time
    while left := [it for it in Path("/proc").glob("[0-9]*/cmdline") if mark in text_of(it)]:
        assert time.monotonic() < until, [text_of(it) for it in left]
        time.sleep(0.05)


def text_of(path: Path) -> str:
    try:
        return path.read_text().replace("\0", " ")
    except OSError:
        return ""


@confined
@pytest.mark.parametrize("tool", [["chroot", "/nowhere"], ["a_tool_that_is_missing"]])
def test_a_sandbox_that_does_not_start_is_no_verdict(tmp_path, monkeypatch, capsys, tool):
    """It is the judge's failure, with an exit status of its own; others get their verdicts."""
    monkeypatch.setattr(Sandbox, "command", lambda self, words, *more: [*tool, *words])
    files = [str(written(tmp_path, n, (CONTROLS | EXPLOITS)[n])) for n in ("plain", "fork")]
    assert main(["square", *files, "--json"]) == 3
    said = capsys.readouterr()
    assert "the sandbox did not start" in said.err
    verdicts = [json.loads(it)["verdict"] for it in said.out.splitlines()]
    assert verdicts == ["failed", "rejected"]


def test_a_submission_cannot_pass_for_a_sandbox_that_does_not_start(tmp_path):
    (tmp_path / "errors").write_text("bwrap: no\n")
    work = SimpleNamespace(folder=tmp_path, box=Sandbox.here())
    assert _Work._errors(work) == "bwrap: no"
