"""A user's macros of everyday names, which no header of the simulator's is to meet."""

import re
from pathlib import Path

import pytest
import torch

import jitload
import simulator
from lab.checker.program import check_program
from simulator import ptx
from simulator.scan import blank
from toolchain import machine
from toolchain.errors import CompileError
from toolchain.macros import STEERING, apart

# x, y and z are members of threadIdx: nvcc, too, would not compile a kernel with these as macros.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvw"
WORDS = """
    lane warp Warp block_size Kernel Sum Block Code index value rows cols row col BLOCK TILE WIDTH
    width height depth stride offset bytes count total result out in input output src dst source
    left right low high first last next prev head tail start stop step steps len length target size
    data Type Tile Word Shape Format Lane Group Rank Key Value Index Node Item State Scope Kind Mode
    Bits Half Pair Range bits word tile shape rank key item state scope kind mode flag flags status
    error level order Mask mask sum mean variance alpha beta eps scale bias weight grad loss thread
    threads block blocks grid grids group groups cluster barrier phase pipe stage stages load store
    add sub mul div put get set get_value read write copy fill reduce scan sort merge split address
    pointer buffer cache page region slot cell entry table map list queue file line name text body
    message kernel launch call function arguments params which found held site time now seed random
    noise sample batch channels channel image pixel color x0 y0 z0 dx dy dz nx ny nz px py pz vx vy
    vz ix iy iz tx ty tz bx by bz gx gy gz radius angle speed mass force energy temperature Real
    real_t vec vec_t TILE_SIZE BLOCK_SIZE NUM_THREADS WARP_SIZE SIZE DIM PI EPS CHECK MAX MIN DEBUG
    to from as best Down Up Zero Round Exact all none valid items keys values others ranks generic
    shared special half f32 f16 u32 u64 s32 b32 mma lop3 aligned always_inline visibility
"""
NAMES = {name: number for number, name in enumerate([*LETTERS, *WORDS.split()], 3)}
FLAGS = [f"-D{name}={number}" for name, number in NAMES.items()]
KERNEL = """
#undef Code
#define Code 4
INCLUDES
#define weighted(v) ((v) * lane + Code)
__global__ __launch_bounds__(32) void scaled(float* out_, int n_) {
    extern __shared__ float shared_[];
    __shared__ alignas(16) float own_[32];
    float sum_;
    own_[threadIdx.x] = shared_[threadIdx.x] = out_[threadIdx.x];
    __syncthreads();
    sum_ = own_[31 - threadIdx.x] + shared_[threadIdx.x];
    assert(n_ == 32);
    out_[threadIdx.x] = weighted(__shfl_xor_sync(~0u, sum_, 1)) + Sum + A;
}
extern "C" cudaError_t by_name(float* out_) {
    void (*kernel_)(float*, int) = scaled;
    kernel_<<<1, 32, 128>>>(out_, 32);
    return cudaGetLastError();
}
extern "C" void launched(float* out_) { scaled<<<1, 32, 128>>>(out_, 32); }
"""
BY_GPP = "clang" not in machine.cxx()  # which says where a macro is defined
EXPECTED = 31.0 * NAMES["lane"] + 4 + NAMES["Sum"] + NAMES["A"]


def offered() -> list[str]:
    """What a source may include of the simulator's headers, but for those that stand for
    PyTorch's, which take long."""
    folder = simulator.INCLUDE
    found = [p.relative_to(folder).as_posix() for p in sorted(folder.rglob("*")) if p.is_file()]
    inner = r"(simulator|ATen|c10|torch|thrust|crt|cuda/std/__cccl)/"
    inner += "" if machine.cccl() else "|cuda/"
    return [name for name in found if not re.match(inner, name)]


def test_a_program_may_have_them_by_flags_and_before_its_includes(tmp_path):
    assert len(NAMES) > 200
    source = tmp_path / "scaled.cu"
    source.write_text(
        KERNEL.replace("INCLUDES", "\n".join(f"#include <{name}>" for name in offered()))
    )
    kernel = jitload.load(source, target="cpu", flags=FLAGS)
    for call in (kernel.launched, kernel.by_name):
        x = torch.arange(32.0)
        call(x)
        assert x.tolist() == [EXPECTED] * 32


# Of each kind of instruction that becomes more than a call: the products of a warp, a warpgroup and
# tensor memory, copies in bulk, barriers, atomics, conversions.
PTX = r"""
#include <mma.h>
#define CONVERTED(v_) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v_) : "f"(1.0f), "f"(2.0f))
__global__ void product(float* d_, const unsigned* a_, const unsigned* b_) {
    float d0_ = 0, d1_ = 0, d2_ = 0, d3_ = 0;
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
        " {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d0_), "+f"(d1_), "+f"(d2_), "+f"(d3_)
        : "r"(a_[0]), "r"(a_[1]), "r"(a_[2]), "r"(a_[3]), "r"(b_[0]), "r"(b_[1]));
    d_[threadIdx.x] = d0_;
}
__global__ void other(unsigned long long* p_, unsigned* q_, float* f_, const void* map_) {
    __shared__ alignas(128) unsigned long long own_[64];
    unsigned at_ = (unsigned)__cvta_generic_to_shared(own_), v_ = 0, w_ = 0, x_[4] = {};
    float c_[4] = {};
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at_));
    asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;");
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0;"
                 " selp.u32 %0, 1, 0, p; }" : "=r"(v_) : "r"(at_));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%0];" ::"r"(at_), "l"(map_), "r"(0), "r"(0));
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 16;"
                 ::"l"(p_), "r"(at_));
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16; cp.async.commit_group;"
                 " cp.async.wait_group 0;" ::"r"(at_), "l"(p_));
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %4,"
                 " 1, 1, 1, 0, 0;" : "+f"(c_[0]), "+f"(c_[1]), "+f"(c_[2]), "+f"(c_[3]) : "l"(p_));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;");
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(at_));
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0;"
                 " tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %1, %2, p; }"
                 ::"r"(at_), "l"(p_), "r"(w_), "r"(v_));
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%0];" ::"l"(p_));
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1]; tcgen05.wait::ld.sync.aligned;"
                 : "=r"(v_) : "r"(at_));
    asm volatile("tcgen05.cp.cta_group::1.128x256b [%0], %1;" ::"r"(at_), "l"(p_));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x_[0]), "=r"(x_[1]), "=r"(x_[2]), "=r"(x_[3]) : "r"(at_));
    asm volatile("ld.acquire.gpu.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v_), "=r"(w_) : "l"(p_));
    asm volatile("atom.add.release.gpu.u32 %0, [%1], 1;" : "=r"(v_) : "l"(q_));
    asm volatile("st.release.cta.f32 [%0], %1;" ::"l"(f_), "f"(c_[0]));
    asm volatile("shfl.sync.down.b32 %0, %1, 1, 31, -1;" : "=r"(v_) : "r"(w_));
    asm volatile("bar.sync 1, 32; membar.gl;");
    asm volatile("{ .reg .pred p; bar.red.popc.u32 %0, 0, p; }" : "=r"(v_));
    asm volatile("mov.u32 %0, %%laneid; lop3.b32 %0, %0, %1, %0, 0x1e; add.cc.u32 %0, %0, 1;"
                 : "+r"(v_) : "r"(w_));
    asm volatile("cvt.rna.tf32.f32 %0, %1; fma.rn.f32 %1, %1, %1, 0f3f800000;"
                 : "=r"(w_), "+f"(c_[1]));
    CONVERTED(v_);
    f_[0] = c_[1] + v_ + w_;
}
extern "C" void launched(float* d_, int* a_, int* b_) {
    product<<<1, 32>>>(d_, (unsigned*)a_, (unsigned*)b_);
}
extern "C" void never(float* d_, int* a_) {
    other<<<1, 128>>>((unsigned long long*)d_, (unsigned*)a_, d_, a_);
}
"""


def test_a_source_with_ptx_may_have_them(tmp_path):
    (tmp_path / "product.cu").write_text(PTX)
    kernel = jitload.load(tmp_path / "product.cu", target="cpu", flags=FLAGS)
    ones = torch.full((4,), 0x3C003C00, dtype=torch.int32)  # pairs of halves
    d = torch.zeros(32)
    kernel.launched(d, ones, ones)
    assert d.tolist() == [16.0] * 32


# What the words of a translated statement may be besides: those of C++ and of <stdint.h>.
CPP = (
    "do while if goto const auto bool true false void static constexpr unsigned int float double"
    " char signed nullptr decltype static_cast extern u?int(?:8|16|32|64)_t uintptr_t"
)
FREE = re.compile(rf"simulator\w*|_[A-Z_]\w*|{CPP.replace(' ', '|')}")


def test_a_translated_statement_names_nothing_that_is_not_reserved():
    root = Path(simulator.__file__).parents[1]
    paths = [path for path in root.glob("*/**/*.cu*") if ".venv" not in path.parts]
    texts = [PTX, *(path.read_text() for path in paths)]
    texts += [
        text
        for path in (root / "tests/simulator").glob("test_ptx*.py")
        if "asm" in (text := path.read_text())
    ]
    words, statements = set(), 0
    for text in texts:
        for found in ptx.translations(text, blank(text)) if "asm" in text else ():
            statements += 1
            for _, _, put in found.edits:
                if "#if" in put:  # has the user's own text in it
                    continue
                code = re.sub(r'"(?:[^"\\]|\\.)*"', "", put)
                words |= {*re.findall(r"\b[A-Za-z_]\w*", code)}
    assert statements > 500
    assert sorted(word for word in words if not FREE.fullmatch(word)) == []


PROGRAM = """
#include <cstdio>
#include <vector>
#define Code 4
#include <cuda_fp16.h>
template <typename T_> __global__ void add(T_* out_, T_ v_) { out_[threadIdx.x] += v_ * lane; }
int main() {
    float* device_;
    cudaMalloc(&device_, 32 * sizeof(float));
    cudaMemset(device_, 0, 32 * sizeof(float));
    add<<<dim3(1), 32>>>(device_, float(Code));
    std::vector<float> host_(32);
    cudaMemcpy(host_.data(), device_, 32 * sizeof(float), cudaMemcpyDeviceToHost);
    std::printf("%g\\n", host_[31]);
}
"""


@pytest.mark.parametrize("check", [False, True])
def test_a_program_with_a_main_may_have_them(tmp_path, capfd, check):
    (tmp_path / "program.cu").write_text(PROGRAM)
    flags = [f"-D{name}=3" for name in ("A", "B", "X", "T", "N", "i", "lane", "Kernel", "Sum")]
    if check and not BY_GPP:
        pytest.skip("lab.check needs g++")
    if check:
        report = check_program([tmp_path / "program.cu"], flags=flags)
        assert not len(report.findings["kind"])
    else:
        ran = jitload.Program(tmp_path / "program.cu", target="cpu", flags=flags).run()
        assert ran.exit_status == 0
    assert "12\n" in capfd.readouterr().out


@pytest.mark.parametrize(
    "flags", [["-D", "N=4"], ["--define-macro=N=4"], ["-Xcompiler=-DN=4"], ["-DN=1"]]
)
def test_flags_define_them_in_any_form_and_in_order(tmp_path, monkeypatch, flags):
    (tmp_path / "before.h").write_text("#define AS_SEEN_BEFORE N\n")
    (tmp_path / "n.cu").write_text('extern "C" int n() { return AS_SEEN_BEFORE; }\n')
    monkeypatch.chdir(tmp_path)
    late = ["-UN", "-DN=4"] if flags == ["-DN=1"] else []
    flags = [*flags, *late, "-include", "before.h"]
    assert jitload.load(tmp_path / "n.cu", target="cpu", flags=flags).n() == 4


@pytest.mark.parametrize(
    ("flag", "place", "hint"),
    [("-DA=4", "wrong.cu:2:9: error", "the flag -DA defines it"), ("-DA(=4", "the flag -DA: ", "")],
)
def test_an_error_names_the_users_line_and_the_flag(tmp_path, flag, place, hint):
    source = tmp_path / "wrong.cu"
    source.write_text('extern "C" int n() {\n    int A = 3;\n    return A;\n}\n')
    with pytest.raises(CompileError) as caught:
        jitload.load(source, target="cpu", flags=[flag])
    assert place in str(caught.value)
    assert not BY_GPP or hint in (caught.value.hint or "")


def test_an_error_names_the_line_behind_an_include_with_macros(tmp_path):
    source = tmp_path / "wrong.cu"
    source.write_text("#define Code 4\n#include <cuda_fp16.h>\nint a = 2 + Code;\nint Code;\n")
    with pytest.raises(CompileError) as caught:
        jitload.load(source, target="cpu")
    assert (caught.value.path, caught.value.line, caught.value.column) == (source, 4, 5)
    assert caught.value.hint == ("Code is a macro here" if BY_GPP else None)


def test_what_the_headers_ask_for_stays_in_front_of_them():
    asked = set()
    for path in simulator.INCLUDE.rglob("*"):
        if path.is_file():
            text = re.sub(r"//.*", "", path.read_text().replace("\\\n", " "))
            for condition in re.findall(r"^[ \t]*#[ \t]*(?:el)?if(?:n?def)?\b(.*)", text, re.M):
                condition = re.sub(r"\bdefined\b|__has_\w+\([^)]*\)", "", condition)
                asked |= {*re.findall(r"\b[A-Za-z_]\w*", condition)}
    assert {"NDEBUG", "SIMULATOR_PART"} <= asked
    assert [name for name in asked if not re.fullmatch(STEERING, name)] == []
    assert [name for name in NAMES if re.fullmatch(STEERING, name)] == []


def test_the_other_flags_stay_in_order():
    flags = ["-O2", "-DNDEBUG", "-DA", "-UA", "-U", "_X", "-include-pch", "p", "-DF(v)=v"]
    kept, given = apart(flags)
    assert kept == ["-O2", "-DNDEBUG", "-U_X", "-include-pch", "p"]
    assert given.macros == {"A": None, "F": "F(v) v"}
