"""Which spellings of Blackwell's instructions ptxas accepts, and the simulator: the same."""

from __future__ import annotations

import itertools

import pytest
from assembled import refused

from simulator import ptx
from simulator.scan import blank
from toolchain import machine

REGISTERS = ".reg .pred p; .reg .b32 r<13>; .reg .b64 d<3>; .reg .f32 f<4>; .reg .b16 h<4>;"

C, A, B, SPARSE_B, HALVES = (
    "{f0, f1, f2, f3}", "{r0, r1, r2, r3}", "{r4, r5}", "{r4, r5, r6, r7}", "{r8, r9}",
)  # fmt: skip
SCALES = ", r10, {h0, h1}, r11, {h2, h3}"


def of_warps() -> list[str]:
    """mma.sync of sm_120a: a kind before and behind the order, vectors and types of scales."""
    found = []
    for sparse, (kind, k), vectors, scale, first in itertools.product(
        ("", ".sp", ".sp::ordered_metadata"),
        (("mxf8f6f4", 32), ("mxf4", 64), ("mxf4nvf4", 64)),
        ("", ".scale_vec::1X", ".scale_vec::2X", ".scale_vec::4X"),
        ("ue8m0", "ue4m3"),
        (True, False),
    ):
        parts = [".row.col", f".kind::{kind}.block_scale{vectors}"]
        order = "".join(parts if first else reversed(parts))
        end = f", {SPARSE_B}, {C}, r12, 0" if sparse else f", {B}, {C}"
        shape = f"m16n8k{2 * k if sparse else k}"
        name = f"mma{sparse}.sync.aligned.{shape}{order}.f32.e2m1.e2m1.f32.{scale}"
        found.append(f"{name} {C}, {A}{end}{SCALES};")
    for sparse, k, (d, of_d) in itertools.product(
        ("", ".sp", ".sp::ordered_metadata"), (32, 64), (("f32", C), ("f16", HALVES))
    ):
        end = f", {SPARSE_B}, {of_d}, r12, 0" if sparse else f", {B}, {of_d}"
        name = f"mma{sparse}.sync.aligned.m16n8k{k}.row.col.kind::f8f6f4.{d}.e2m1.e3m2.{d}"
        found.append(f"{name} {of_d}, {A}{end};")
    return found


def of_tensor_memory() -> list[str]:
    """tcgen05.mma of sm_100a: .sp, .ws, .ashift, collectors, vectors of scales and masks."""
    found = []
    for ws, sparse, cta, a, flags in itertools.product(
        ("", ".ws"), ("", ".sp"), "12", ("d0", "[r0]"),
        ("", ".ashift", ".collector::a::fill", ".ashift.collector::a::use",
         ".collector::a::lastuse.ashift", ".collector::b3::discard"),
    ):  # fmt: skip
        metadata = "[r2], " if sparse else ""
        name = f"tcgen05.mma{ws}{sparse}.cta_group::{cta}.kind::f16{flags}"
        found.append(f"{name} [r1], {a}, d1, {metadata}r3, p;")
    for kind, vectors in itertools.product(
        ("mxf8f6f4", "mxf4", "mxf4nvf4"),
        ("", ".scale_vec::1X", ".scale_vec::2X", ".scale_vec::4X", ".block16", ".block32"),
    ):
        name = f"tcgen05.mma.sp.cta_group::1.kind::{kind}.block_scale{vectors}"
        found.append(f"{name} [r1], d0, d1, [r2], r3, [r4], [r5], p;")
        found += [
            f"tcgen05.mma.cta_group::{cta}.kind::{kind}.block_scale{vectors}"
            f" [r1], {a}, d1, r3, [r4], [r5], p;"
            for cta, a in itertools.product("12", ("d0", "[r0]"))
        ]
    for shape, values, split in itertools.product(
        ("32x32b", "16x64b", "16x128b", "16x32bx2"), ("r1", "{r1}", "{r1, r2}"), ("", ", 8")
    ):
        found.append(f"tcgen05.ld.sync.aligned.{shape}.x1.b32 {values}, [r0]{split};")
        found.append(f"tcgen05.st.sync.aligned.{shape}.x1.b32 [r0]{split}, {values};")
    masks = ["{r4, r5, r6, r7}", "{r4, r5, r6, r7, r8, r9, r10, r11}"]
    for cta, mask in itertools.product("12", masks):
        found.append(f"tcgen05.mma.cta_group::{cta}.kind::f16 [r1], d0, d1, r3, {mask}, p;")
    return found


def of_the_rest() -> list[str]:
    """What else is new in sm_100a: tensor copies, matrices of bytes, and arithmetic."""
    found = []
    registers = {n: "{" + ", ".join(f"r{i}" for i in range(n)) + "}" for n in range(1, 6)}
    for to, multicast, cta, mode in itertools.product(
        ("cluster", "cta"),
        ("", ".multicast::cluster"),
        ("", ".cta_group::1", ".cta_group::2"),
        (".tile", ".tile::gather4", ".im2col", ".im2col::w"),
    ):
        rank = {".tile": 4, ".tile::gather4": 2}.get(mode, 4)
        name = f"cp.async.bulk.tensor.{rank}d.shared::{to}.global{mode}"
        operands = f"[r9], [d0, {registers[5 if rank == 2 else 4]}], [r10]"
        operands += ", {h1, h2}" * mode.startswith(".im2col") + ", h0" * bool(multicast)
        found.append(f"{name}.mbarrier::complete_tx::bytes{multicast}{cta} {operands};")
    for shape, type_, trans, x in itertools.product(
        ("m8n8", "m8n16", "m16n16", "m16n8"),
        ("b16", "b8", "b8x16.b6x16_p32", "b8x16.b4x16_p64"),
        ("", ".trans"),
        (1, 2, 4),
    ):
        name = f"matrix.sync.aligned.{shape}.x{x}{trans}.shared.{type_}"
        for count in {x, min(2 * x, 4)}:
            found.append(f"ld{name} {registers[count]}, [r9];")
            found.append(f"st{name} [r9], {registers[count]};")
    for op, a, b in itertools.product(("min", "max"), ("", ".abs"), ("", ".NaN")):
        found.append(f"redux.sync.{op}{a}{b}.f32 f0, f1, r0;")
        found += [f"{op}{b}{a}.f32 f0, f1, f2{more};" for more in ("", ", f3")]
    for op, kind in itertools.product(("add", "sub", "mul", "fma.rn"), ("f16", "bf16")):
        found.append(f"{op}.f32.{kind} f0, h0, {'h1, ' * (op == 'fma.rn')}f1;")
    found += [f"st.bulk{weak}.shared::cta [d0], 64, 0;" for weak in ("", ".weak")]
    for mode, finite, relu, (to, of, operands) in itertools.product(
        ("rn", "rz", "rp", "rm"),
        ("", ".satfinite"),
        ("", ".relu"),
        (("ue8m0x2", "bf16x2", "h0, r1"), ("ue8m0x2", "f32", "h0, f1, f2"),
         ("bf16x2", "ue8m0x2", "r1, h0"), ("f16x2", "ue8m0x2", "r1, h0"),
         ("e2m3x2", "f32", "h0, f1, f2"), ("e3m2x2", "f16x2", "h0, r1"),
         ("f16x2", "e3m2x2", "r1, h0"), ("e4m3x2", "f32", "h0, f1, f2")),
    ):  # fmt: skip
        found.append(f"cvt.{mode}{finite}{relu}.{to}.{of} {operands};")
    name, operands = "cp.async.bulk.global.shared::cta.bulk_group", "[d0], [r9], 64"
    for hint, masked in itertools.product(("", ".L2::cache_hint"), ("", ".cp_mask")):
        right = ", d1" * bool(hint) + ", h0" * bool(masked)
        for more in {right, "", ", d1, h0"}:
            found.append(f"{name}{hint}{masked} {operands}{more};")
            found.append(f"{name}{masked}{hint} {operands}{more};")
    return found


def of_reduced_loads() -> list[str]:
    """tcgen05.ld.red of sm_103a: the qualifiers of a reduction, in every order."""
    found = []
    for type_, more in itertools.product(
        ("f32", "u32", "s32", "b32"), ((), ("abs",), ("NaN",), ("abs", "NaN"))
    ):
        for op, shape, count in itertools.product(
            ("min", "max", "add"), ("32x32b", "16x32bx2", "16x64b"), (1, 2, 4)
        ):
            values = "{" + ", ".join(f"r{i}" for i in range(count)) + "}"
            split = ", 16" if shape == "16x32bx2" else ""
            name = f"tcgen05.ld.red.sync.aligned.{shape}.x{count}"
            orders = itertools.permutations((op, type_, *more)) if (op, count) == ("min", 2) else ()
            for order in [(op, *more, type_), *orders]:
                found.append(f"{name}.{'.'.join(order)} {values}, r5, [r6]{split};")
    for shape, split in (("32x32b", ", 16"), ("16x32bx2", "")):
        found.append(f"tcgen05.ld.red.sync.aligned.{shape}.x2.min.u32 {{r0, r1}}, r5, [r6]{split};")
    return found


def simulates(line: str) -> bool:
    text = f'__global__ void k() {{ asm volatile("{{ {REGISTERS} {line} }}"); }}\n'
    found = ptx.translations(text, blank(text))
    return all(each.refused is None for each in found)


@pytest.mark.slow
@pytest.mark.skipif(machine.cuda_home() is None, reason="needs ptxas")
@pytest.mark.parametrize(
    ("lines", "architecture"),
    [
        (of_warps(), "sm_120a"),
        (of_tensor_memory(), "sm_100a"),
        (of_tensor_memory(), "sm_103a"),
        (of_the_rest(), "sm_100a"),
        (of_reduced_loads(), "sm_103a"),
    ],
    ids=["sm_120a", "sm_100a", "sm_103a", "the rest of sm_100a", "reduced loads of sm_103a"],
)
def test_the_simulator_knows_what_ptxas_accepts(tmp_path, lines, architecture):
    said = refused(lines, REGISTERS, architecture, tmp_path)
    wrong = {
        line: said.get(line, "ptxas accepts it")
        for line in lines
        if (line not in said) != simulates(line)
    }
    assert not wrong
