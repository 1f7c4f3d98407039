"""Times from outside the submission's process. Here the simulator stands for the GPU."""

import pytest
import torch
from exploits import CONTROLS, RUN, submission

from lab.judge import speed
from lab.judge.run import MEMORY, Verdict, _Rejected, _Work
from lab.judge.sandbox import Sandbox
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


def timed(monkeypatch, folder, text: str, floor: float = -1e9, task: str = "square") -> dict:
    """The time of a submission, where nothing but the floor would end it."""
    monkeypatch.setattr(speed.Floor, "seconds", lambda *_: floor)
    source = folder / "submission.cu"
    source.write_text(text)
    told = Verdict(task, source.name, 0, stage="fast")
    timing = {"elements": 1 << 13, "rounds": 2, "copy_gb_per_s": 1.0}
    box = Sandbox.here()
    work = _Work(Task.of(task), folder, box, told, 30, MEMORY, False, path=task, timing=timing)
    try:
        work._fast(source, torch.float32, 0, device="cpu")
    except _Rejected as why:
        return {"rejected": why.findings[0]["kind"], "message": why.findings[0]["message"]}
    return told.time


def test_a_right_one_is_timed_beside_the_reference(monkeypatch, tmp_path):
    found = timed(monkeypatch, tmp_path, CONTROLS["plain"])
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
