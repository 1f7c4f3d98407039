"""lab.profile, with a fake ncu in the place of NVIDIA's: what it asks for, and how it fails."""

import json
import operator
import sys
import time
from pathlib import Path

import fake_ncu
import pytest
import torch
from jit_cases import write

import jitload
import lab
from docs.programs import checker_ncu
from lab.checker.trial import Call
from lab.profiler import ncu, profile_process

COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
RAW = f"""\
==PROF== Connected to process 7
"ID","Process ID","Kernel Name","Block Size","Grid Size","CC","gpu__time_duration.sum","{COMPUTE}"
"","","","","","","nsecond","%"
"0","7","_Z5twicePfi","(256, 1, 1)","(512, 2, 1)","9.0","8,125","22.5"
"1","7","_Z4halfPf","(32, 1, 1)","(1, 1, 1)","9.0","1500","0.25"
"""
SOURCE = """\
"Kernel Name","_Z5twicePfi"
"Address","Source","# Samples","stall_long_sb","Instructions Executed"
"0x100","LDG.E R1, [R2]","1,024","1000","4"
"0x110","EXIT","0","0","4"
"Kernel Name","_Z4halfPf"
"Address","Source","# Samples","stall_long_sb","Instructions Executed"
"0x200","EXIT","0","0","4"
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Let a fake ncu be on PATH, and say what it is to do; returns where it notes its command."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "a GPU")
    program = tmp_path / "bin" / "ncu"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{Path(fake_ncu.__file__).read_text()}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    asked = tmp_path / "asked"

    def tell(end: dict | None = None, raw: str = RAW, source: str = SOURCE, **told) -> Path:
        if end is not None:
            torch.save(end, tmp_path / "end")
            told["end"] = str(tmp_path / "end")
        for name, text in ("raw", raw), ("source", source):
            if text:
                (tmp_path / name).write_text(text)
                told[name] = str(tmp_path / name)
        (tmp_path / "told").write_text(json.dumps(told | {"asked": str(asked)}))
        monkeypatch.setenv("FAKE_NCU", str(tmp_path / "told"))
        return asked

    yield tell
    assert not list((tmp_path / "tmp").iterdir()), "temporary files are left"


ENDED = {"builds": []}


def test_a_call_is_profiled(fake):
    asked = fake(ENDED)
    report = lab.profile(operator.neg, torch.ones(3), launches=5)
    words = json.loads(asked.read_text())
    assert words[words.index("--clock-control") + 1] == "none"
    assert words[words.index("--profile-from-start") + 1] == "off"
    assert words[words.index("--launch-count") + 1] == "5"
    assert "SourceCounters" in words
    assert report.kernels["kernel"].tolist() == ["twice", "half"]
    assert report.kernels["microseconds"].tolist() == [8.125, 1.5]
    assert report.kernels["grid"].tolist() == [(512, 2), (1,)]
    assert str(report).startswith("_operator.neg: 2 launches, 9.6 µs on a GPU")
    assert "twice: 8.12 µs, 512 x 2 blocks of 256 threads" in str(report)
    assert not report.has_lines
    assert report.lines.empty


@pytest.mark.parametrize("metrics", [[], ["dram__bytes_read.sum"]])
def test_bytes_of_dram_are_asked_for_by_name(fake, metrics):
    """The sections that are collected do not have them, on an H200 for one."""
    asked = fake(ENDED)
    lab.profile(operator.neg, torch.ones(3), metrics=metrics)
    words = json.loads(asked.read_text())
    assert words[words.index("--metrics") + 1] == "dram__bytes_read.sum,dram__bytes_write.sum"


def test_more_counters_are_columns(fake):
    asked = fake(ENDED)
    wanted = ["gpu__time_duration.sum", "no__such.sum"]
    report = lab.profile(operator.neg, torch.ones(3), metrics=wanted)
    words = json.loads(asked.read_text())
    assert words[words.index("--metrics") + 1].split(",")[-2:] == wanted
    assert report.kernels["gpu__time_duration.sum"].tolist() == [8125, 1500]
    assert report.kernels["no__such.sum"].isna().all()


def test_the_other_process_knows_the_builds_of_the_calls_kernel(in_scratch, monkeypatch):
    """Without them a report has no lines of source."""
    source = "__global__ void one(float* x) { x[threadIdx.x] = 1; }"
    kernel = jitload.load(write("one.cu", source), target="cpu")
    call = Call.of(kernel.one[1, 32], (torch.zeros(32),), {})
    monkeypatch.setattr("jitloader.handle._kernels", {})  # as in a fresh process
    assert jitload.loaded() == []
    call.prepared()()
    assert call.args[0].sum() == 32
    assert [other.build for other in jitload.loaded()] == [kernel.build]


def test_a_function_may_have_the_name_of_a_method(in_scratch):
    """The method stands, and is what the profiler calls."""
    source = 'extern "C" int whole() { return 7; }'
    with pytest.warns(RuntimeWarning, match="own has a function called whole, and so has every"):
        kernel = jitload.load(write("own.cu", source), target="cpu")
    assert kernel.at().functions["whole"]() == 7
    assert kernel.whole() == kernel.build
    assert kernel.build.folder in profile_process.build_folders()


def test_the_pages_of_a_report_are_read():
    first, second = ncu.parsed_raw(RAW)
    assert first.number("no such metric", "gpu__time_duration.sum") == 8125
    assert second.number("no such metric") is None
    assert (first.architecture, first.name) == ("sm_90", "twice")
    (name, rows), (other, _) = ncu.parsed_source(SOURCE)
    assert (name, other) == ("_Z5twicePfi", "_Z4halfPf")
    assert [row["# Samples"] for row in rows] == ["1,024", "0"]
    assert ncu.parsed_raw("==WARNING== No kernels were profiled.\n") == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU"
            " Performance Counters on the target device 0.",
            r"(?s)RestrictProfilingToAdminUsers=0.*--cap-add=SYS_ADMIN.*ERR_NVGPUCTRPERM says more",
        ),
        (
            "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no"
            " other tool (like DCGM) is concurrently collecting profiling data.",
            "something else reads the GPU's counters",
        ),
        (
            "==ERROR== Profiling is not supported on device 0. To find out supported GPUs refer to"
            " --list-chips option.",
            "does not know this GPU",
        ),
        ("==ERROR== Cuda driver is not compatible with Nsight Compute.", "do not fit together"),
        ("==ERROR== Something that nobody has seen.", "ncu failed:\n.*nobody has seen"),
    ],
)
def test_what_ncu_complains_of_is_explained(fake, said, told):
    fake(says=f"==PROF== Connected to process 7\n{said}", status=1)
    with pytest.raises(ncu.NcuError, match=told) as raised:
        lab.profile(operator.neg, torch.ones(3))
    assert said in raised.value.output


def test_a_call_that_fails_is_told(fake):
    said = "==ERROR== The application returned an error code (1)."
    fake({"error": "ValueError: three is no size"}, says=said, status=1)
    with pytest.raises(
        RuntimeError, match=r"_operator\.neg raised.*\nValueError: three is no size"
    ):
        lab.profile(operator.neg, torch.ones(3))


def test_a_process_that_ends_by_itself_is_told(fake):
    fake(says="adding\n==ERROR== The application returned an error code (139).", status=139)
    with pytest.raises(RuntimeError, match=r"(?s)ended its process with status 139.*adding"):
        lab.profile(operator.neg, torch.ones(3))


def test_a_call_that_launches_nothing(fake):
    fake(ENDED, says="==WARNING== No kernels were profiled.", raw="")
    with pytest.raises(RuntimeError, match="launched no kernel on the GPU"):
        lab.profile(operator.neg, torch.ones(3))


def test_the_time_is_limited(fake):
    fake(says='==PROF== Profiling "twice" - 0: 0%', seconds=600)
    started = time.perf_counter()
    with pytest.raises(RuntimeError, match=r"not profiled within 0\.3 s.*1 of its kernels"):
        lab.profile(operator.neg, torch.ones(3), seconds=0.3)
    assert time.perf_counter() - started < 60


def test_an_interrupt_ends_all_of_it(fake, monkeypatch):
    fake(seconds=600)

    def interrupted(output: str) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(ncu, "profiled", interrupted)
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt, match=r"the profile of _operator\.neg was stopped"):
        lab.profile(operator.neg, torch.ones(3))
    assert time.perf_counter() - started < 60


def test_without_a_gpu_the_checker_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"torch sees none here\. lab\.check"):
        lab.profile(operator.neg, torch.ones(3))


def test_without_ncu_it_says_where_to_get_it(fake, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(jitload.MissingTool, match=r"no ncu.*developer\.nvidia\.com/nsight-compute"):
        lab.profile(operator.neg, torch.ones(3))


@pytest.mark.parametrize(
    "arguments", [(lambda: 1,), (operator.add, lambda: 1), (torch.ops.aten.relu, torch.ones(2))]
)
def test_what_cannot_be_sent_is_refused_with_a_reason(fake, arguments):
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        lab.profile(*arguments)


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"launches": 0}])
def test_limits_that_make_no_sense(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name}: 0; wanted is a positive number"):
        lab.profile(operator.neg, torch.ones(3), **wrong)


def test_the_checkers_page_reads_the_same_reports(fake):
    launches = "".join(
        f'"{n}","7","_Z4kernPf","(32, 1, 1)","(1, 1, 1)","9.0","{n}",""\n'
        for n in range(len(checker_ncu.ALL_PATTERNS))
    )
    head, units, *_ = RAW.splitlines()[1:]
    counter = checker_ncu.COUNTERS["global", "read"][1]
    asked = fake(raw=f"{head.replace(COMPUTE, counter)}\n{units}\n{launches}")
    counts = checker_ncu.counters()
    assert "--kernel-name" in json.loads(asked.read_text())
    assert len(counts) == len(checker_ncu.ALL_PATTERNS)
    assert counts[3][counter] == 0, "a counter that a launch does not have is empty"
