"""Times from outside the submission's process. Here the simulator stands for the GPU."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from exploits import CONTROLS, EXPLOITS, RUN, submission

from lab.judge import gate, rounds, speed
from lab.judge.run import MEMORY, Verdict, _Rejected, _Work
from lab.judge.sandbox import Sandbox, threads_of
from lab.judge.task import Task

EARLY = submission(
    'FILE* f = nullptr; for (int fd = 3; fd < 64; ++fd) if ((f = fdopen(fd, "w"))) {'
    ' fputs("{}\\n{\\"sums\\": [[0], [0], [0], [0]]}\\n", f); fflush(f); }\n    ' + RUN,
    "#include <cstdio>\n",
)
# Right in a round's first call, and later its other inputs' answers.
CACHED = submission(
    "if (kept && size == n) { for (int64_t i = 0; i < n; ++i) y[i] = kept[i]; return cudaSuccess; }"
    "\n    " + RUN + "\n    size = n; kept = new float[n];"
    " for (int64_t i = 0; i < n; ++i) kept[i] = y[i];",
    "float* kept; int64_t size;\n",
)
THREAD = "#include <thread>\n#include <unistd.h>\n"
LATER = "std::thread([=] {{ usleep({}); " + RUN.replace("stream>>>", "0>>>") + " }}).detach();"
TIMER = submission(
    RUN,
    'extern "C" cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t)'
    " { *ms = 1e-6f; return cudaSuccess; }\n#include <ctime>\n"
    'extern "C" int clock_gettime(clockid_t, timespec* t) { t->tv_sec = t->tv_nsec = 0; return 0; }'
    "\n",
)
SIDE = submission(
    "static cudaStream_t other = nullptr;\n"
    "    if (!other) cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);\n    "
    + RUN.replace("stream>>>", "other>>>")
)
# What is rejected when it is timed on a GPU, and for what.
CHEATS = {
    "answered_early": (EARLY, {"wrong"}),
    "cached": (EXPLOITS["cached_by_address"], {"wrong"}),
    "cached_once": (EXPLOITS["result_cached"], {"wrong"}),
    "warm_up_seen": (EXPLOITS["warm_up_seen"], {"wrong"}),
    "graph_replayed": (EXPLOITS["graph_replayed"], {"wrong"}),
    "nothing": (EXPLOITS["nothing"], {"wrong"}),
    "zeros": (EXPLOITS["zeros"], {"wrong"}),
    "most_rows": (submission("if (n > 1 << 20) n -= n / 20; " + RUN), {"wrong"}),
    "written_later": (submission(LATER.format(20000), THREAD), {"wrong", "threads"}),
    "written_soon": (submission(LATER.format(100), THREAD), {"wrong", "threads"}),
    "one_of_four_later": (
        submission(
            "static int calls = 0; if (++calls % 4 == 0) { " + LATER.format(300) + " }\n"
            "    else " + RUN,
            THREAD,
        ),
        {"wrong", "threads"},
    ),
    "worker": (
        submission(
            "static std::thread* worker = new std::thread([] { for (;;) usleep(1000); });"
            " (void)worker;\n    " + RUN,
            THREAD,
        ),
        {"threads"},
    ),
    "clock_redefined": (EXPLOITS["clock_redefined"], {"wrong"}),
    "events_redefined": (EXPLOITS["events_redefined"], {"wrong"}),
}
# What does all of its work, whatever it claims: its time is the same.
IN_VAIN = {"timer": TIMER, "side_stream": SIDE}


def timed(
    monkeypatch,
    folder,
    text: str,
    floor: float | None = -1e9,
    task: str = "square",
    device: str = "cpu",
) -> dict:
    """The time of a submission, where nothing but the floor would end it."""
    if floor is not None:
        monkeypatch.setattr(speed.Floor, "seconds", lambda *_: floor)
    source = folder / "submission.cu"
    source.write_text(text)
    told = Verdict(task, source.name, 0, stage="fast")
    timing = {"elements": 1 << 13, "rounds": 2, "copy_gb_per_s": 1.0} if device == "cpu" else {}
    box = Sandbox.here()
    work = _Work(Task.of(task), folder, box, told, 30, MEMORY, False, path=task, timing=timing)
    work.is_op = gate.is_op(text)
    try:
        work._fast(source, torch.float32, 0, device=device)
    except _Rejected as why:
        return {"rejected": why.findings[0]["kind"], "message": why.findings[0]["message"]}
    return told.time


@pytest.mark.parametrize("name", ["plain", pytest.param("op", marks=pytest.mark.slow)])
def test_a_right_one_is_timed_beside_the_reference(monkeypatch, tmp_path, name):
    found = timed(monkeypatch, tmp_path, CONTROLS[name])
    assert found["clock"] == "CPU simulator"
    assert {"seconds", "reference", "floor", "spread"} <= found.keys()
    assert found["sizes"] == {"cols": 4096, "rows": 2}


def test_less_than_the_floor_is_no_time(monkeypatch, tmp_path):
    found = timed(monkeypatch, tmp_path, CONTROLS["plain"], floor=1e9)
    assert found["rejected"] == "below the floor"
    assert "16384 operations" not in found["message"]
    assert "65536 bytes" in found["message"]


@pytest.mark.slow
@pytest.mark.parametrize("text", [EARLY, CACHED], ids=["answered_early", "cached"])
def test_who_answers_before_the_work_is_done_is_wrong(monkeypatch, tmp_path, text):
    assert timed(monkeypatch, tmp_path, text).get("rejected") == "wrong"


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@needs_gpu
@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_gets_a_time(monkeypatch, tmp_path, name):
    text, kinds = CHEATS[name]
    found = timed(monkeypatch, tmp_path, text, None, device="cuda")
    assert found.get("rejected") in kinds, found


@needs_gpu
def test_right_ones_get_their_time_and_tampering_is_in_vain(monkeypatch, tmp_path):
    texts = CONTROLS | IN_VAIN
    found = {n: timed(monkeypatch, tmp_path, it, None, device="cuda") for n, it in texts.items()}
    assert all("seconds" in it for it in found.values()), found
    for name in IN_VAIN:
        assert found[name]["seconds"] > 0.8 * found["plain"]["seconds"], found


def test_what_is_written_after_the_answer_does_not_count():
    work = rounds.Rounds(
        Task.of("square"),
        {"sizes": {"rows": 2, "cols": 3}, "dtype": "float32", "sets": 1, "device": "cpu"},
    )
    work.prepare(1)
    work.outputs[0][0].zero_()
    work.keep()
    work.outputs[0][0].copy_(work.inputs[0]["x"] ** 2)
    assert work.sums(2) == {"sums": [[0.0]]}
    assert work.truth(2)["sums"] != [[0.0]]


def test_inputs_of_later_rounds_lie_where_the_first_ones_did():
    asked = {"sizes": {"rows": 2, "cols": 3}, "dtype": "float32", "sets": 2, "device": "cpu"}
    work = rounds.Rounds(Task.of("square"), asked)
    work.prepare(1)
    addresses, first = [t["x"].data_ptr() for t in work.inputs], work.inputs[1]["x"].clone()
    work.prepare(2)
    assert [t["x"].data_ptr() for t in work.inputs] == addresses
    assert torch.equal(work.inputs[0]["x"], first)  # drawn from the seed 1 + 1
    assert not torch.equal(work.inputs[1]["x"], first)


def test_threads_are_counted_in_all_of_a_process_family():
    start = "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()"
    code = f"import subprocess, sys; {start}; subprocess.run([sys.executable, '-c', {start!r}])"
    code = code.replace("subprocess.run(", "p = subprocess.Popen(")
    code += "; print(p.pid, flush=True)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        child = int(process.stdout.readline())
        deadline = time.monotonic() + 60
        while threads_of(process.pid) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert threads_of(process.pid) == 4
        assert threads_of(child) == 2
    finally:
        os.kill(child, signal.SIGKILL)
        process.kill()
        process.communicate()


def test_the_floor_counts_bytes_and_operations():
    square = speed.Floor.of(Task.of("square"), {"rows": 64, "cols": 128}, torch.float32)
    assert (square.bytes, square.operations) == (2 * 4 * 64 * 128, 0)
    sizes = {"rows": 64, "cols": 128}
    product = speed.Floor.of(Task.of("matmul"), sizes, torch.bfloat16)
    units = Task.of("matmul").op.sizes["units"]
    assert product.operations == 2 * 64 * 128 * units
    gpu = speed.known_gpu("NVIDIA H200")
    assert gpu.name == "H200"
    assert speed.known_gpu("a GPU of the future") is None
    least = square.seconds(gpu, gpu.copy_gb_per_s, torch.float32)
    assert least == pytest.approx(square.bytes / (1e9 * gpu.copy_gb_per_s) / speed.FASTER)


@pytest.mark.parametrize("found", [None, [], [[1.0]], {"a": 1}, "sums", [[float("nan")]]])
def test_an_answer_may_be_anything(found):
    truth = {"sums": [[1.0], [2.0]], "allowed": [[0.1], [0.1]]}
    with pytest.raises(speed.Rejected, match="wanted"):
        speed._compare(found, truth, 1)
    speed._compare([[1.05], [1.95]], truth, 1)


def test_work_after_the_answer_counts():
    nothing = [1.0, 1.02, 0.99, 1.01, 1.0]
    assert speed._worked_later(nothing, nothing) == 0
    assert speed._worked_later([1.4] * 5, nothing) == pytest.approx(0.4 / speed.SETS)
