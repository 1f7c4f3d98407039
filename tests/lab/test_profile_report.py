"""What a report of lab.profile makes of ncu's pages and of the machine code of a build."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from pandas import DataFrame

import jitload
from lab.profiler import ncu, stalls
from lab.profiler.ncu import Launch
from lab.profiler.report import Profile
from toolchain.instructions import functions
from toolchain.sass import parsed

SOURCE = ["__global__ void twice(float* x) {", "    x[i] *= 2;", "    s[i] = x[i];", "}"]
CODE = """\
	.target	sm_90
	.section	.text._Z5twicePf,"ax",@progbits
	//## File "/home/me/twice.cu", line 1
        /*0000*/                   S2R R0, SR_TID.X ;
	//## File "/home/me/vec.cuh", line 7 inlined at "/home/me/twice.cu", line 2
	//## File "/home/me/twice.cu", line 2
        /*0010*/                   LDG.E R4, desc[UR4][R2.64] ;
        /*0020*/              @!P0 STG.E desc[UR4][R2.64], R4 ;
	//## File "/home/me/twice.cu", line 3
        /*0030*/                   STS [R0], R4 ;
"""
INSTRUCTIONS = [
    {"Source": "S2R R0, SR_TID.X", "# Samples": "10", "stall_selected": "10"},
    {
        "Source": "LDG.E R4, desc[UR4][R2.64]",
        "# Samples": "1,000",
        "Instructions Executed": "64",
        "stall_selected": "600",
        "stall_long_sb": "300",
        "stall_barrier": "100",
        "L2 Theoretical Sectors Global": "512",
        "L2 Theoretical Sectors Global Ideal": "256",
    },
    {
        "Source": "@!P0 STG.E desc[UR4][R2.64], R4",
        "# Samples": "90",
        "Instructions Executed": "64",
        "stall_lg": "90",
        "L2 Theoretical Sectors Global": "256",
        "L2 Theoretical Sectors Global Ideal": "256",
    },
    {
        "Source": "STS [R0], R4",
        "# Samples": "100",
        "Instructions Executed": "64",
        "stall_short_sb": "100",
        "L1 Wavefronts Shared": "128",
        "L1 Wavefronts Shared Ideal": "64",
    },
]
METRICS = {
    "CC": "9.0",
    "Grid Size": "(512, 1, 1)",
    "Block Size": "(256, 1, 1)",
    "gpu__time_duration.sum": "8125",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "81.2",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "22.3",
    "sm__maximum_warps_per_active_cycle_pct": "75",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "66.1",
    "launch__occupancy_limit_registers": "6",
    "launch__occupancy_limit_shared_mem": "32",
    "launch__occupancy_limit_warps": "8",
    "launch__registers_per_thread": "40",
}


def launch(symbol: str = "_Z5twicePf", **metrics: str) -> Launch:
    rows = [{"Address": f"{0x7F00 + 16 * n:#x}"} | row for n, row in enumerate(INSTRUCTIONS)]
    return Launch(symbol, METRICS | metrics, rows)


def build(code: str = CODE) -> SimpleNamespace:
    """As much of a jitload.Build as a report asks for."""
    return SimpleNamespace(
        kept={"twice.cu": "0_twice.cu"},
        sources=lambda: {"twice.cu": SOURCE},
        users_file=lambda path: "twice.cu" if path.endswith("/twice.cu") else None,
        machine_code=lambda: functions(parsed(code)),
    )


def profile(*launches: Launch, builds: tuple = ()) -> Profile:
    return Profile("mine.twice", [*launches] or [launch()], [*builds] or [build()], "a GPU", 32)


def test_a_launch_in_a_row():
    (row,) = profile().kernels.to_dict("records")
    assert (row["kernel"], row["grid"], row["block"]) == ("twice", (512,), (256,))
    assert (row["microseconds"], row["memory"], row["compute"]) == (8.125, 81.2, 22.3)
    assert (row["occupancy"], row["achieved"]) == (75, 66.1)
    assert (row["limited_by"], row["blocks"], row["registers"]) == ("registers", 6, 40)
    assert row["tensor"] is None, "it was not measured"


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({}, "limited by registers: 40 registers a thread, 6 blocks fit a multiprocessor"),
        (
            {"launch__occupancy_limit_shared_mem": "1", "launch__shared_mem_per_block": "200000"},
            "limited by shared memory: 195.3 KiB a block, 1 block fits a multiprocessor",
        ),
        (
            {"launch__occupancy_limit_warps": "2", "Block Size": "(768, 1, 1)"},
            "limited by block size: 768 threads a block, 2 blocks fit a multiprocessor",
        ),
        ({"sm__maximum_warps_per_active_cycle_pct": "100"}, "100% possible, 66% achieved"),
    ],
)
def test_what_limits_the_occupancy(metrics, said):
    assert said in str(profile(launch(**metrics)))


RECORDED = Path(__file__).parent / "recorded"


def test_what_an_h200_said():
    """Recorded there by ncu 2025.3.1: softmax, layer_norm, patterns of one warp, torch's ops."""
    launches = ncu.parsed_raw((RECORDED / "ncu_raw.csv").read_text())
    report = Profile("calls", launches, [], "NVIDIA H200", 32)
    softmax, norm, naive, *_, matmul, relu = report.kernels.to_dict("records")
    assert softmax["kernel"] == "forward_vector<float, true>"
    assert softmax["microseconds"] == pytest.approx(8.032)
    assert softmax["bytes"] == pytest.approx(8_418_816)
    assert (softmax["limited_by"], softmax["blocks"]) == ("shared memory", 11)
    assert (norm["limited_by"], norm["blocks"]) == ("registers", 4)
    assert naive["limited_by"] == "", "4 blocks are few, but nothing keeps more away"
    assert matmul["limited_by"] == "registers and shared memory"
    assert matmul["tensor"] == pytest.approx(30.377693)
    assert relu["kernel"].startswith("at::native::vectorized_elementwise_kernel")
    said = str(report)
    assert "forward_vector<float, true>: 8.03 µs, 512 blocks of 128 threads" in said
    assert "limited by shared memory: 19.1 KiB a block, 11 blocks fit a multiprocessor" in said
    assert "tensor cores 30%" in said
    assert "6% achieved; the grid has less than 1% of the blocks that fit the GPU at once" in said
    assert "achieved; limited by blocks: 32 blocks fit a multiprocessor" in said


def test_each_line_has_what_its_instructions_have():
    lines = profile().lines.set_index("line")
    assert lines.index.tolist() == [1, 2, 3]
    two = lines.loc[2]
    assert (two["samples"], two["instructions"], two["requests"]) == (1090, 128, 128)
    assert (two["sectors"], two["ideal_sectors"]) == (768, 512)
    assert two["share"] == pytest.approx(1090 / 1200)
    assert (two["reason"], two["reason_share"]) == ("global memory", pytest.approx(300 / 1090))
    assert lines.loc[1, "reason"] == "", "to issue is no stall"
    three = lines.loc[3]
    assert (three["passes"], three["ideal_passes"], three["shared_requests"]) == (128, 64, 64)
    assert (three["reason"], three["requests"]) == ("shared memory", 0)


def test_the_lines_of_a_kernel_of_an_h200():
    """A transpose through shared memory by columns; some columns of ncu's page."""
    ((symbol, instructions),) = ncu.parsed_source((RECORDED / "column_source.csv").read_text())
    of = build((RECORDED / "column.sass").read_text())
    of.users_file = lambda path: "mine.cu" if path.endswith("/mine.cu") else None
    lines = profile(Launch(symbol, METRICS, instructions), builds=(of,)).lines.set_index("line")
    assert lines.index.tolist() == [5, 7, 8, 9, 10]
    names = ["requests", "sectors", "shared_requests", "passes", "ideal_passes"]
    assert lines.loc[7, names].tolist() == [32, 128, 32, 32, 32]
    assert lines.loc[9, names].tolist() == [32, 128, 32, 1024, 32], "32 conflicts a request"
    assert lines["share"].tolist() == [0.5, 0, 0, 0, 0], "the other sample is past the end"


def test_launches_of_one_kernel_add_up():
    report = profile(launch(), launch())
    assert report.lines["samples"].sum() == 2400
    assert report.microseconds == 16.25
    assert "2 launches, 16.2 µs on a GPU" in report.headline


def test_stalls_are_told_by_line_and_reason():
    table = profile().stalls
    assert table["reason"].tolist()[1:4] == ["issues", "global memory", "barrier"]
    assert table["samples"].sum() == 1200


def test_a_kernel_of_no_build_has_no_lines():
    report = profile(launch("_ZN2at6native4reluE"))
    assert not report.has_lines
    assert "at::native::relu: 8.12 µs" in str(report)
    assert "samples" not in str(report)


def test_without_the_disassembler_the_rest_is_told():
    def missing() -> None:
        raise jitload.MissingTool("no nvdisasm: pip install it")

    without = build()
    without.machine_code = missing
    report = profile(builds=(without,))
    assert "There are no lines of source: no nvdisasm: pip install it." in str(report)
    assert "81% of its peak" in str(report)


def test_without_a_source_page_the_rest_is_told():
    report = profile(Launch("_Z5twicePf", METRICS))
    assert "ncu's source page has none" in str(report)
    assert not report.has_lines
    assert "81% of its peak" in str(report)


def checked(**counts: int) -> SimpleNamespace:
    names = ("requests", "sectors", "passes", "bank_conflicts")
    zero = dict.fromkeys(names, 0)
    rows = [
        zero | {"file": "twice.cu", "line": 2, "memory": "global", "requests": 64, "sectors": 512},
        zero | {"file": "twice.cu", "line": 2, "memory": "global", "requests": 64, "sectors": 256},
        zero
        | {"file": "twice.cu", "line": 3, "memory": "shared", "requests": 64, "passes": 64}
        | counts,
    ]
    return SimpleNamespace(traffic=DataFrame(rows))


def test_the_checkers_counts_stand_beside():
    report = profile().beside(checked())
    table = report.counts.set_index(["line", "memory", "count"])
    assert table.loc[(2, "global", "requests")].tolist()[1:] == [128, 128]
    assert table.loc[(2, "global", "sectors")].tolist()[1:] == [768, 768]
    assert table.loc[(3, "shared", "passes")].tolist()[1:] == [128, 64]
    assert table.loc[(3, "shared", "bank_conflicts")].tolist()[1:] == [64, 0]
    assert "lab.check has the same in 3 of 5." in str(report)
    assert "128 (lab.check 64)" in str(report)
    same = profile().beside(checked(passes=128, bank_conflicts=64))
    assert "lab.check has the same in 5 of 5." in same._repr_html_()


@pytest.mark.parametrize("line", [7, 9], ids=["its line", "another of an #if"])
def test_a_helper_that_only_the_gpu_has_inlined_counts_where_it_was_inlined(line):
    of = build()
    files = {"/home/me/twice.cu": "twice.cu", "/home/me/vec.cuh": "vec.cuh"}
    of.users_file = files.get
    counts = checked()
    counts.traffic.loc[:1, ["file", "line"]] = ["vec.cuh", line]
    table = profile(builds=(of,)).beside(counts).counts
    assert "vec.cuh" not in set(table["file"])
    table = table.set_index(["line", "memory", "count"])
    assert table.loc[(2, "global", "sectors")].tolist()[1:] == [768, 768]


def test_text_and_html_show_the_same():
    report = profile()
    text, html = str(report), report._repr_html_()
    for said in ("mine.twice: 1 launch, 8.1 µs on a GPU", "90.8%", "6.0 (4.0)", "2.0 (1.0)"):
        assert said in text
        assert said in html
    assert re.search(r"twice\.cu:2 +90\.8% +global memory 28% .*x\[i\] \*= 2;", text)
    assert "width: 81.2%" in html
    assert "28% global memory: waits for data" in html, "why, in the tooltip"
    hot = [float(heat) for heat in re.findall(r"rgba\(213, 94, 0, ([\d.]+)\)", html)]
    assert max(hot) == 0.65
    assert len(hot) == 3


def test_the_reasons_of_ncu_have_words():
    assert stalls.reason("stall_long_sb") == "long_sb"
    assert stalls.reason("Instructions Executed") is None
    assert stalls.what("branch_resolve") == "branch"
    assert stalls.what(stalls.reason("stall_sleep")) == "sleep"
    assert stalls.what("one_of_next_year") == "one of next year"
    assert stalls.why("one_of_next_year") == ""
