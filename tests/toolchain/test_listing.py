"""kernel.sass() and kernel.ptx(): read from nvdisasm and nvcc, shown, filtered and compared."""

import re

import pytest
from jit_cases import answer, load, write

import jitload
from toolchain import machine, opcodes, ptx, sass
from toolchain.instructions import Instruction, Place, functions
from toolchain.listing import Listing, ListingSource
from toolchain.listing_diff import ListingDiff

SASS = """\
	.target	sm_90
	.section	.text._Z5twicePf,"ax",@progbits
_Z5twicePf:
.text._Z5twicePf:
	//## File "/home/me/twice.cu", line 2
        /*0000*/                   S2R R0, SR_TID.X ;
	//## File "/usr/include/math.h", line 9 inlined at "/home/me/include/vec.cuh", line 7
	//## File "/home/me/include/vec.cuh", line 7 inlined at "/home/me/twice.cu", line 3
	//## File "/home/me/twice.cu", line 3
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
.L_x_0:
        /*0020*/                   BRA `(.L_x_0) ;
        /*0030*/                   EXIT ;
.L_x_1:
        /*0040*/                   BRA `(.L_x_1) ;
        /*0050*/                   NOP ;
.L_x_2:
"""
PTX = """\
.version 9.0
.target sm_90
.visible .entry _Z5twicePf(
	.param .u64 _Z5twicePf_param_0
)
{
	.reg .b32 	%r<3>;
	.loc	1 2 5
	mov.u32 	%r1, %tid.x;
	.loc	2 7 3, function_name $L__info_string0, inlined_at 1 3 5
	ld.global.u32 	%r2, [%rd1]; // a comment
	.loc	3 9 1, function_name $L__info_string1, inlined_at 2 7 3
	{ mul.f32 %f1, %f2, %f3; }
	.loc	1 0 5
$L__BB0_1:
	ret;
}
	.file	1 "/home/me/twice.cu"
	.file	2 "/home/me/include/vec.cuh"
	.file	3 "/usr/include/math.h"
"""
SOURCES = {
    "twice.cu": ["// twice", "int i = threadIdx.x;", "y[i] = load(x + i);"],
    "include/vec.cuh": [""] * 6 + ["return *p;"],
}


def users_file(path: str) -> str | None:
    return next((name for name in SOURCES if path.endswith(f"/me/{name}")), None)


def listing(text: str = SASS, of: str = "twice_1") -> Listing:
    parsed = sass.parsed(text) if ".section" in text else ptx.parsed(text)
    return Listing(functions(parsed), ListingSource("SASS", of, SOURCES, users_file))


def test_nvdisasm_is_read():
    (function,) = listing()
    assert (function.name, function.architecture) == ("twice", "sm_90")
    first, load, label, branch, end = function.code
    assert end.text == "EXIT", "what stands behind the end is none of it"
    assert (first.text, first.offset) == ("S2R R0, SR_TID.X", 0)
    assert first.places == (Place("/home/me/twice.cu", 2),)
    assert [place.line for place in load.places] == [9, 7, 3]
    assert load.place(users_file) == Place("twice.cu", 3)
    assert label.is_label
    assert branch.places == load.places


def test_ptx_is_read():
    (function,) = listing(PTX)
    assert (function.name, function.architecture) == ("twice", "compute_90")
    assert [it.text for it in function.instructions] == [
        "mov.u32 %r1, %tid.x",
        "ld.global.u32 %r2, [%rd1]",
        "{ mul.f32 %f1, %f2, %f3; }",
        "ret",
    ]
    lines = [[place.line for place in it.places] for it in function.instructions]
    assert lines == [[2], [7, 3], [9, 7, 3], []]


def test_a_line_of_a_kernel_in_a_header_is_the_headers_own():
    places = Place("/home/me/other.cuh", 1), Place("/home/me/include/vec.cuh", 7)
    assert Instruction("EXIT", places).place(lambda file: file) == places[1]


def test_text_shows_each_line_beside_its_instructions():
    title, first, load, label, branch, _ = str(listing()).splitlines()
    assert title == "twice, sm_90: 4 instructions"
    assert re.fullmatch(r"twice\.cu:2 +int i = threadIdx\.x; +\|   0000  S2R R0, SR_TID\.X", first)
    assert load.startswith("twice.cu:3")
    assert label.endswith("| .L_x_0:")
    assert branch.split("|")[0].isspace(), "the line is the same"


def test_html_colours_by_kind_and_tints_by_line():
    html = listing()._repr_html_()
    assert "@!P0 <b style='color: rgb(40, 140, 210)'>LDG.E.128</b>" in html
    assert "global memory" in html
    assert "tensor cores" not in html.partition("kp-code")[0], "the legend has what occurs"
    assert "y[i] = load(x + i);" in html
    assert len(set(re.findall(r"hsla\((\d+)", html))) == 2


def test_very_many_instructions_become_a_table():
    lines = "".join(f"        /*{16 * n:04x}*/  FADD R0, R0, R0 ;\n" for n in range(1, 5000))
    long = listing(SASS.replace("        /*0030*/                   EXIT ;\n", lines))
    assert str(long).splitlines()[0].split()[:3] == ["function", "for", "instructions"]
    assert "sass(name) shows" in str(long)
    assert "<td>twice</td><td>sm_90</td>" in long._repr_html_()


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ({"name": "tw"}, 5),
        ({"line": 2}, 1),
        ({"line": "vec.cuh:7"}, 3),
        ({"line": "include/vec.cuh:7"}, 3),
        ({"architecture": "sm_90"}, 5),
        ({"architecture": "9.0"}, 5),
    ],
)
def test_filters(wanted, left):
    (function,) = listing().only(**wanted)
    assert len(function.code) == left


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"name": "thrice"}, "has no function 'thrice' on a GPU; it has: twice"),
        ({"line": 44}, "no instruction is of line 44; there are of 2, 3"),
        ({"architecture": "sm_80"}, "is not built for sm_80, but for sm_90"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(wanted, said):
    with pytest.raises(ValueError, match=said):
        listing().only(**wanted)


def test_a_diff_leaves_out_the_numbers_of_registers_and_labels():
    same = SASS.replace("R4", "R44").replace(".L_x_0", ".L_x_17")
    diff = ListingDiff(listing(), listing(same, "twice_2"))
    assert (list(diff), diff.same) == ([], 1)
    assert str(diff) == "SASS of twice_1 and twice_2: 0 functions differ, 1 the same"


def test_a_diff_shows_what_came_and_went():
    changed = SASS.replace("LDG.E.128 R4", "LDG.E.64 R8")
    changed += SASS.partition(".target	sm_90\n")[2].replace("_Z5twicePf", "_Z4halfPf")
    diff = ListingDiff(listing(), listing(changed, "twice_2"))
    text = str(diff)
    assert "twice, sm_90: 4 instructions before, 4 now" in text
    assert "LDG.E.128 1 → 0, LDG.E.64 0 → 1" in text
    assert "| - 0010  @!P0 LDG.E.128 R4, desc[UR4][R2.64]" in text
    assert "| + 0010  @!P0 LDG.E.64 R8, desc[UR4][R2.64]" in text
    assert "half, sm_90: new, 4 instructions" in text
    html = diff._repr_html_()
    assert re.search(r'rgba\(248,81,73,0.25\)">[^<]*\| - 0010', html)
    assert re.search(r'rgba\(46,160,67,0.25\)">[^<]*\| \+ 0010', html)


def test_a_function_whose_parameters_changed_is_the_same_one():
    changed = SASS.replace("_Z5twicePf", "_Z5twicePd").replace("LDG.E.128", "LDG.E.64")
    (change,) = ListingDiff(listing(), listing(changed, "twice_2"))
    assert (change.old.symbol, change.new.symbol) == ("_Z5twicePf", "_Z5twicePd")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("@!P0 LDG.E.128 R4, desc[UR4][R2.64]", "global memory"),
        ("LDGSTS.E.BYPASS.128 [R1], desc[UR4][R2.64]", "global memory"),
        ("UTMALDG.2D [UR8], [UR4]", "global memory"),
        ("LDSM.16.M88.4 R4, [R2]", "shared memory"),
        ("LDL R1, [R2]", "local memory"),
        ("HMMA.16816.F32.BF16 R4, R8, R12, R4", "tensor cores"),
        ("HGMMA.64x128x16.F32 R24, gdesc[UR4], R24", "tensor cores"),
        ("BAR.SYNC.DEFER_BLOCKING 0x0", "barriers and branches"),
        ("SHFL.BFLY PT, R3, R2, 0x10, 0x1f", "warp"),
        ("FFMA R0, R1, R2, R3", opcodes.OTHER),
        ("LDC R1, c[0x0][0x28]", opcodes.OTHER),
        ("@%p1 bra $L__BB0_2", "barriers and branches"),
        ("ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1]", "global memory"),
        ("{ ld.global.u32 %r1, [%rd1]; }", "global memory"),
        ("ld.param.u64 %rd1, [p]", opcodes.OTHER),
        ("ld.shared.f32 %f1, [%r1]", "shared memory"),
        ("st.local.f32 [%rd1], %f1", "local memory"),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%f1}", "tensor cores"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}", "tensor cores"),
        ("cp.async.cg.shared.global [%r1], [%rd1], 16", "global memory"),
        ("cp.async.wait_group 0", "barriers and branches"),
        ("cp.async.bulk.commit_group", "barriers and branches"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.tile [%r1], [%rd1]", "global memory"),
        ("mbarrier.try_wait.parity.shared::cta.b64 p, [%r1], %r2", "barriers and branches"),
    ],
)
def test_kinds(text, kind):
    assert opcodes.kind(text) == kind


# ---- builds


@pytest.mark.usefixtures("in_scratch")
@pytest.mark.parametrize("language", ["sass", "ptx"])
def test_the_simulator_has_no_machine_code_of_a_gpu(language):
    kernel = load(answer(1))
    found = getattr(kernel, language)()
    assert found == []
    assert str(found).startswith("answer is built for the CPU's simulator")
    assert 'jitload.ensure(..., target="cuda")' in str(found)
    assert "simulator" in found._repr_html_()
    assert str(getattr(kernel, language)(against=0)) == str(found)


TWO = """
    #include "part.cuh"
    template <class T>
    __global__ void one(T* x) {
        x[threadIdx.x] = part(x[threadIdx.x]);
    }
    template __global__ void one<float>(float*);
    __global__ void two(float* x) { x[threadIdx.x] = 1; }
"""


def built(value: int) -> jitload.Build:
    write(
        "include/part.cuh", f"template <class T> __device__ T part(T x) {{ return x * {value}; }}"
    )
    return jitload.ensure(write("two.cu", TWO), target="cuda", include=["include"])


def missing() -> str:
    """What this machine lacks to show machine code."""
    try:
        machine.cuda_tool("cuobjdump")
        machine.cuda_tool("nvdisasm")
    except jitload.MissingTool as error:
        return str(error)
    return "" if machine.cuda_home() else "no nvcc"


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.usefixtures("in_scratch")
def test_builds_are_shown_and_compared(monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    old, new = built(3), built(5)  # the files of the old one are gone by then
    shown = new.sass("one")
    assert [it.name for it in shown] == ["one<float>"]
    assert re.search(r"two\.cu:4 +x\[threadIdx\.x\] = part.*FMUL R\d+, R\d+, 5", str(shown), re.S)
    changed = new.sass(against=old)
    assert [it.function.name for it in changed] == ["one<float>"]
    assert changed.same == 1
    assert "FMUL" in str(changed)
    of_ptx = new.ptx("one", against=old)
    assert re.search(r"- mul.*0f40400000", str(of_ptx)), "3, from the sources of the old build"
    assert re.search(r"\+ mul.*0f40A00000", str(of_ptx))
    with pytest.raises(ValueError, match="leave out line, or against"):
        new.sass(line=4, against=old)
    without = jitload.ensure(answer(1), target="cuda")
    assert str(without.sass()) == f"{without.name} has no function for a GPU."
    assert without.sass() == without.ptx("one") == []


@pytest.mark.skipif(machine.cuda_home() is None, reason="no nvcc")
@pytest.mark.usefixtures("in_scratch")
def test_without_the_disassembler_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    build = built(3)
    monkeypatch.setattr(machine.os, "access", lambda *_: False)
    sass.machine_code.cache_clear()
    with pytest.raises(
        jitload.MissingTool, match=r"no cuobjdump.*pip install nvidia-cuda-cuobjdump"
    ):
        build.sass()
