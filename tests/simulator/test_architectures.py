"""Builds for compute capability 10.0 and 12.0: their macros, their device, and what they lack."""

from __future__ import annotations

import re

import pytest
import torch
from assembled import refused

import jitload
from simulator.architectures import Architecture
from toolchain import machine
from toolchain.errors import CompileError

MACROS = (
    *("ARCH__", "ARCH_SPECIFIC__", "ARCH_FAMILY_SPECIFIC__"),
    *(f"ARCH_FEAT_SM{number}_ALL" for number in (90, 100, 103, 120, 121)),
)
NEWLINE = "\n"
ASKS = NEWLINE.join(
    f"#ifdef __CUDA_{name}\n    asked[{n}] = __CUDA_{name} + 1 - 1;\n    known[{n}] = 1;\n#endif"
    for n, name in enumerate(MACROS)
)
SOURCE = f"""
#include <cuda_runtime.h>
// nvcc leaves out what nothing calls.
__device__ void wgmma_alone() {{ asm volatile("wgmma.fence.sync.aligned;"); }}
__device__ inline void tensor_memory_alone() {{
    asm volatile("tcgen05.fence::before_thread_sync;");
}}
template <int N>
__device__ void pair() {{
    asm volatile("{{ .reg .b64 a, b; mov.b64 a, 0; mov.b64 b, 0; add.f32x2 a, a, b; }}");
}}
__global__ void ask(int* asked, int* known) {{
{ASKS}
}}
__global__ void many() {{}}
extern "C" void run(int* asked, int* known, int* device) {{
    cudaDeviceProp it;
    cudaGetDeviceProperties(&it, 0);
    cudaDeviceGetAttribute(device, cudaDevAttrComputeCapabilityMajor, 0);
    device[1] = it.minor;
    device[2] = int(it.sharedMemPerBlockOptin);
    device[3] = cudaFuncSetAttribute(many, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);
    cudaGetLastError();
    ask<<<1, 1>>>(asked, known);
}}
"""


@pytest.mark.parametrize(
    ("setting", "number", "suffix"),
    [
        ("", 900, "a"),
        ("8.0 9.0 10.0 12.0+PTX", 900, "a"),
        ("10.0a", 1000, "a"),
        ("10.0f", 1000, "f"),
        ("8.0;10.3a", 1030, "a"),
        ("12.0a 10.0a", 1200, "a"),
        ("12.1a", 1210, "a"),
        ("10.0 12.0", 1200, ""),
    ],
)
def test_a_build_has_the_macros_and_the_device_of_its_architecture(
    tmp_path, monkeypatch, setting, number, suffix
):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", setting)
    path = tmp_path / "ask.cu"
    path.write_text(SOURCE)
    asked, known = torch.zeros(2, len(MACROS), dtype=torch.int32)
    device = torch.zeros(4, dtype=torch.int32)
    jitload.load(path, target="cpu").run(asked, known, device)
    features = {f"ARCH_FEAT_SM{number // 10}_ALL"} if suffix == "a" else set()
    found = {name for name, there in zip(MACROS, known, strict=True) if there}
    specific = {"": MACROS[:1], "f": (MACROS[0], MACROS[2]), "a": MACROS[:3]}[suffix]
    assert found == {*specific, *features}
    assert {int(asked[MACROS.index(name)]) for name in specific} == {number}
    less = number >= 1200
    shared = (99 if less else 227) << 10
    assert device.tolist() == [number // 100, number % 100 // 10, shared, int(less)]


USES = {
    "tcgen05": (
        '__global__ void k() {\n    asm volatile("tcgen05.wait::ld.sync.aligned;");\n}',
        ["12.0a", "12.0", "10.0"],
        ["10.0a", "10.0f", "10.3a", ""],
    ),
    "inline": (
        "__device__ __forceinline__ void f() {\n"
        '    asm volatile("tcgen05.fence::before_thread_sync;");\n}\n'
        "__global__ void k() { f(); }",
        ["12.0a"],
        ["10.0a"],
    ),
    "template": (
        "template <int N> __device__ void f() {\n"
        '    asm volatile("wgmma.fence.sync.aligned;");\n}\n'
        "__global__ void k() { f<3>(); }",
        ["10.0a", "12.0a"],
        ["9.0a", "9.0"],
    ),
    "guarded": (
        "#if __CUDA_ARCH_FEAT_SM100_ALL\n#define HAS 1\n#else\n#define HAS 0\n#endif\n"
        "__global__ void k() {\n#if HAS\n"
        '    asm volatile("tcgen05.fence::before_thread_sync;");\n'
        '#elif __CUDA_ARCH__ == 900\n    asm volatile("wgmma.fence.sync.aligned;");\n#endif\n}',
        [],
        ["10.0a", "12.0a", ""],
    ),
    "pairs of floats": (
        "__global__ void k() {\n"
        '    asm volatile("{ .reg .b64 a; mov.b64 a, 0; add.rn.f32x2 a, a, a; }");\n}',
        [],
        ["10.0", "12.0a"],
    ),
}


@pytest.mark.parametrize("name", USES)
def test_an_instruction_that_the_architecture_lacks_is_refused(tmp_path, monkeypatch, name):
    source, refused, taken = USES[name]
    path = tmp_path / "use.cu"
    path.write_text(f'{source}\nextern "C" void run() {{ k<<<1, 32>>>(); }}\n')
    line = next((n for n, text in enumerate(source.split("\n"), 1) if "asm" in text), 0)
    for setting in [*refused, *taken]:
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", setting)
        if setting in taken:
            jitload.load(path, target="cpu").run()
            continue
        with pytest.raises(CompileError) as caught:
            jitload.load(path, target="cpu").run()
        mnemonic = re.search(r'"(.*?);', source.split("\n")[line - 1])[1]
        target = f"sm_{setting.replace('.', '')}"
        assert f"{target} does not have {mnemonic}" in str(caught.value)
        assert caught.value.line == line
        if "tcgen05" in mnemonic:
            assert ("no tensor memory" in str(caught.value)) == setting.startswith("12")


def test_a_function_of_the_device_that_is_called_ends_its_kernel(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "12.0a")
    path = tmp_path / "use.cu"
    path.write_text(
        '__device__ void f() { asm volatile("tcgen05.fence::before_thread_sync;"); }\n'
        '__global__ void k() { f(); }\nextern "C" void run() { k<<<1, 1>>>(); }\n'
    )
    with pytest.raises(RuntimeError, match=r"use\.cu:1.*sm_120a does not have tcgen05"):
        jitload.load(path, target="cpu").run()


# An instruction of each kind that is listed, and of what is beside it.
_TO_SHARED = "cp.async.bulk.tensor.4d.shared::{}.global.{}.mbarrier::complete_tx::bytes{}"
JUDGED = {
    "wgmma.fence.sync.aligned": "",
    "setmaxnreg.inc.sync.aligned.u32": "160",
    "tensormap.replace.tile.global_address.global.b1024.b64": "[d0], d1",
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32": "[r0], 32",
    "tcgen05.mma.cta_group::2.kind::f16": "[r1], d1, d2, r2, p",
    "tcgen05.mma.cta_group::1.kind::i8": "[r1], d1, d2, r2, p",
    "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X": (
        "[r1], d1, d2, r2, [r3], [r4], p"
    ),
    "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32": "[r1], d1, d2, r2, [r3], [r4], p",
    "tcgen05.shift.cta_group::1.down": "[r1]",
    "tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32": "{r1, r2}, r3, [r4]",
    "cp.async.bulk.global.shared::cta.bulk_group.cp_mask": "[d0], [r0], 64, h1",
    "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32": (
        "{f1, f2, f3, f4}, {r1, r2, r3, r4}, {r5, r6}, {f1, f2, f3, f4}"
    ),
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32": (
        "{f1, f2, f3, f4}, {r1, r2, r3, r4}, {r5, r6}, {f1, f2, f3, f4}"
    ),
    _TO_SHARED.format("cluster", "tile", ".cta_group::2"): "[r0], [d0, {r1, r2, r3, r4}], [r0]",
    _TO_SHARED.format("cluster", "tile", ".multicast::cluster"): (
        "[r0], [d0, {r1, r2, r3, r4}], [r0], h0"
    ),
    _TO_SHARED.format("cluster", "im2col", ""): ("[r0], [d0, {r1, r2, r3, r4}], [r0], {h0, h1}"),
    _TO_SHARED.format("cluster", "im2col::w", ""): ("[r0], [d0, {r1, r2, r3, r4}], [r0], {h0, h1}"),
    _TO_SHARED.format("cta", "im2col::w", ""): "[r0], [d0, {r1, r2, r3, r4}], [r0], {h0, h1}",
    _TO_SHARED.format("cta", "im2col::w::128", ""): (
        "[r0], [d0, {r1, r2, r3, r4}], [r0], {h0, h1}"
    ),
    _TO_SHARED.replace("4d", "2d").format("cta", "tile::gather4", ""): (
        "[r0], [d0, {r1, r2, r3, r4, r5}], [r0]"
    ),
    _TO_SHARED.replace("4d", "2d").format("cluster", "tile::gather4", ""): (
        "[r0], [d0, {r1, r2, r3, r4, r5}], [r0]"
    ),
    "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group": (
        "[d0, {r1, r2, r3, r4, r5}], [r0]"
    ),
    "cp.async.bulk.prefetch.tensor.4d.L2.global.im2col": "[d0, {r1, r2, r3, r4}], {h0, h1}",
    "cp.async.bulk.prefetch.tensor.4d.L2.global.im2col::w": "[d0, {r1, r2, r3, r4}], {h0, h1}",
    "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128": (
        "[r0], [r0]"
    ),
    "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
    ".multicast::cluster::all.b128": "[r0], [r0]",
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8": "{r1, r2}, [r0]",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16": "{r1}, [r0]",
    "redux.sync.min.f32": "f1, f2, -1",
    "redux.sync.min.u32": "r1, r2, -1",
    "cvt.rs.satfinite.e2m1x4.f32": "h1, {f1, f2, f3, f4}, r1",
    "cvt.rs.f16x2.f32": "r1, f1, f2, r2",
    "cvt.rn.satfinite.e2m3x2.f32": "h1, f1, f2",
    "cvt.rn.satfinite.e4m3x2.f32": "h1, f1, f2",
    "cvt.rz.ue8m0x2.bf16x2": "h1, r1",
    "cvt.rn.satfinite.tf32.f32": "r1, f1",
    "cvt.rn.tf32.f32": "r1, f1",
    "add.f32x2": "d1, d2, d3",
    "fma.rn.f32.f16": "f1, h1, h2, f2",
    "fma.rn.f32": "f1, f2, f3, f4",
    "max.f32": "f1, f2, f3, f4",
    "min.NaN.f32": "f1, f2, f3",
    "ld.global.v8.b32": "{r1, r2, r3, r4, r5, r6, r7, r8}, [d0]",
    "ld.global.v4.b32": "{r1, r2, r3, r4}, [d0]",
    "st.global.v4.b64": "[d0], {d1, d2, d3, d4}",
    "st.bulk.shared::cta": "[r0], 64, 0",
}
REGISTERS = ".reg .pred p; .reg .b32 r<10>; .reg .b64 d<10>; .reg .f32 f<10>; .reg .b16 h<3>;"


@pytest.mark.skipif(machine.cuda_home() is None, reason="needs ptxas")
@pytest.mark.parametrize("name", ["9.0a", "10.0", "10.0a", "10.0f", "10.3f", "12.0", "12.1a"])
def test_ptxas_agrees_on_what_an_architecture_has(tmp_path, name):
    architecture = Architecture.of(name)
    statements = {it: f"{it} {operands};" for it, operands in JUDGED.items()}
    said = refused(statements.values(), REGISTERS, str(architecture), tmp_path)
    wrong = {}
    for mnemonic, operands in JUDGED.items():
        count = len(re.sub(r"[{\[].*?[}\]]", "x", operands).split(",")) if operands else 0
        lacks, why = architecture.lacks(mnemonic, count), said.get(statements[mnemonic])
        if bool(why) != bool(lacks):
            wrong[mnemonic] = why or lacks
    assert not wrong


def test_pairs_of_floats_and_strict_warnings_as_of_public_kernels(tmp_path, monkeypatch):
    """DeepGEMM's kernels for sm_100a have both, and wait for the launch before."""
    path = tmp_path / "pairs.cu"
    path.write_text(
        '#pragma GCC diagnostic error "-Wmissing-field-initializers"\n'
        "__global__ void pairs(float2* y, const float2* x) {\n"
        "    cudaGridDependencySynchronize();\n"
        "    y[0] = __fadd2_rn(x[0], x[1]);\n"
        "    y[1] = __fmul2_rn(x[0], x[1]);\n"
        "    y[2] = __ffma2_rn(x[0], x[1], x[2]);\n"
        "    cudaTriggerProgrammaticLaunchCompletion();\n}\n"
        "__global__ void product(unsigned d, unsigned long long a, unsigned i) {\n"
        '    asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0;"\n'
        '                 " tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %1, %2, p; }"\n'
        '                 :: "r"(d), "l"(a), "r"(i));\n}\n'
        'extern "C" void run(float* y, const float* x) {\n'
        "    pairs<<<1, 1>>>((float2*)y, (const float2*)x);\n"
        "    if (!x) product<<<1, 1>>>(0, 0, 0);\n}\n"
    )
    x, y = torch.tensor([1 + 2**-23, 2.0, 1 - 2**-23, 3, -1, 5]), torch.zeros(6)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "10.0a")
    jitload.load(path, name="test_pairs", target="cpu").run(y, x)
    a, b, c = x.double().view(3, 2)
    assert torch.equal(y, torch.cat([a + b, a * b, a * b + c]).float())
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    with pytest.raises(RuntimeError, match="__fadd2_rn"):
        jitload.load(path, name="test_pairs_of_hopper", target="cpu")
