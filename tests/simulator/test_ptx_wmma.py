"""wmma.load, wmma.mma and wmma.store: the same bits as nvcuda::wmma, which test_wmma.py tests."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest
import torch
from jit_cases import write

import jitload

TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]
OF_SIXTEEN = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
LAYOUTS = tuple(itertools.product(("row", "col"), repeat=3))  # of A, of B, of C and D
SUB = "wmma::experimental::precision::"
# The type in C++, in memory, and how many of these a register has.
TYPES = {
    "f16": ("half", "half", 2),
    "bf16": ("__nv_bfloat16", "__nv_bfloat16", 2),
    "tf32": ("wmma::precision::tf32", "float", 1),
    "f64": ("double", "double", 1),
    "s8": ("signed char", "signed char", 4),
    "u8": ("unsigned char", "unsigned char", 4),
    "s4": (f"{SUB}s4", "int", 1),
    "u4": (f"{SUB}u4", "int", 1),
    "b1": (f"{SUB}b1", "int", 1),
    "f32": ("float", "float", 1),
    "s32": ("int", "int", 1),
}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}


class Product(NamedTuple):
    a: str  # A's type, and B's
    c: str
    d: str
    shape: tuple[int, int, int]
    layouts: tuple[str, str, str]
    option: str = ""
    default_strides: bool = False

    @property
    def name(self) -> str:
        shape = "_".join(map(str, self.shape))
        option = self.option.strip(".").replace(".", "_")
        return "_".join(filter(None, (self.a, self.c, self.d, shape, option)))

    @property
    def type_words(self) -> str:
        if self.a == "f16":
            return f".{self.d}.{self.c}"
        return f".{self.d}.{self.a}.{self.a}.{self.c}"

    def registers(self, part: str) -> int:
        m, n, k = self.shape
        if part in "ab":
            size = m * k if part == "a" else n * k
            return (
                8
                if self.a == "f16"
                else max(1, size * BITS[self.a] // 32 // 32) >> (self.a == "f64")
            )
        return m * n // 32 // (2 if getattr(self, part) == "f16" else 1)

    def stride(self, part: str) -> int:
        """The smallest, as by default, or one with room between the lines."""
        m, n, k = self.shape
        layout = dict(zip("abcd", (*self.layouts, self.layouts[2]), strict=True))[part]
        lines = {"a": (k, m), "b": (n, k)}.get(part, (n, m))[layout == "col"]
        room = {"s4": 32, "u4": 32, "b1": 128}.get(self.a, 16) if part in "ab" else 8
        return lines + (0 if self.default_strides else room)


def products() -> list[Product]:
    kinds = [("f16", c, d, "") for c, d in itertools.product(("f16", "f32"), repeat=2)]
    kinds += [("bf16", "f32", "f32", "")]
    kinds += [(a, "s32", "s32", option) for a, option in (("s8", ""), ("u8", ".satfinite"))]
    made = [
        Product(a, c, d, OF_SIXTEEN[index % 3], LAYOUTS[index], option, index % 3 == 0)
        for index, (a, c, d, option) in enumerate(kinds)
    ]
    row, col = "row", "col"
    made += [
        Product("tf32", "f32", "f32", (16, 16, 8), (row, row, col)),
        Product("f64", "f64", "f64", (8, 8, 4), (col, row, row)),
        Product("f64", "f64", "f64", (8, 8, 4), (row, col, row), ".rn", True),
        Product("s4", "s32", "s32", (8, 8, 32), (row, col, row)),
        Product("u4", "s32", "s32", (8, 8, 32), (row, col, col), ".satfinite"),
        Product("b1", "s32", "s32", (8, 8, 128), (row, col, row), ".xor.popc"),
        Product("b1", "s32", "s32", (8, 8, 128), (row, col, row), ".and.popc", True),
    ]
    return made


PRODUCTS = products()


def kernel_of(each: Product) -> str:
    """D at once by PTX and by nvcuda::wmma, of words that are anything."""
    x, y, z = each.layouts
    shape = "m{}n{}k{}".format(*each.shape)
    sizes = ", ".join(map(str, each.shape))
    counts = {part: each.registers(part) for part in "abcd"}
    of_type = {"a": each.a, "b": each.a, "c": each.c, "d": each.d}
    layouts = {"a": x, "b": y, "c": z, "d": z}

    def word(part: str) -> tuple[str, str]:
        kind = of_type[part]
        if kind == "f64":
            return "double", "d"
        return ("float", "f") if kind == "f32" else ("unsigned", "r")

    def names(part: str, first: int) -> str:
        return "{" + ", ".join(f"%{first + i}" for i in range(counts[part])) + "}"

    def operands(part: str, output: bool) -> str:
        sign, letter = "=" if output else "", word(part)[1]
        return ", ".join(f'"{sign}{letter}"({part}[{i}])' for i in range(counts[part]))

    lines = [f"{word(part)[0]} {part}[{count}];" for part, count in counts.items()]
    for part in "abc":
        count = counts[part]
        stride = "" if each.default_strides else f", %{count + 1}"
        space = ".shared" if part == "b" else ""
        place = 'r"(unsigned(__cvta_generic_to_shared(tile)))' if part == "b" else f'l"(p{part})'
        given = "" if each.default_strides else f', "r"({each.stride(part)})'
        lines.append(
            f'asm volatile("wmma.load.{part}.sync.aligned.{layouts[part]}.{shape}{space}'
            f'.{of_type[part]} {names(part, 0)}, [%{count}]{stride};" : {operands(part, True)}'
            f' : "{place}{given} : "memory");'
        )
    firsts = list(itertools.accumulate((counts[part] for part in "dab"), initial=0))
    lists = ", ".join(names(part, first) for part, first in zip("dabc", firsts, strict=True))
    bits = each.option if each.a == "b1" else ""
    middle = ".rn" if each.option == ".rn" else ""
    ending = each.option if each.option == ".satfinite" else ""
    inputs = ", ".join(operands(part, False) for part in "abc")
    lines.append(
        f'asm volatile("wmma.mma{bits}.sync.aligned.{x}.{y}.{shape}{middle}{each.type_words}'
        f'{ending} {lists};" : {operands("d", True)} : {inputs});'
    )
    stride = "" if each.default_strides else f", %{counts['d'] + 1}"
    given = "" if each.default_strides else f', "r"({each.stride("d")})'
    lines.append(
        f'asm volatile("wmma.store.d.sync.aligned.{z}.{shape}.global.{each.d} [%0],'
        f' {names("d", 1)}{stride};" :: "l"(pd), {operands("d", False)}{given} : "memory");'
    )
    types = {part: TYPES[kind][0] for part, kind in of_type.items()}
    fragments = [
        f"wmma::fragment<wmma::matrix_a, {sizes}, {types['a']}, wmma::{x}_major> of_a;",
        f"wmma::fragment<wmma::matrix_b, {sizes}, {types['b']}, wmma::{y}_major> of_b;",
        f"wmma::fragment<wmma::accumulator, {sizes}, {types['c']}> of_c;",
        f"wmma::fragment<wmma::accumulator, {sizes}, {types['d']}> of_d;",
    ]
    memory = {part: f"(const {TYPES[kind][1]}*)" for part, kind in of_type.items()}
    loads = [
        f"wmma::load_matrix_sync(of_{part}, {memory[part]}p{part}, {each.stride(part)}"
        f"{f', wmma::mem_{z}_major' if part == 'c' else ''});"
        for part in "abc"
    ]
    product = f"wmma::mma_sync(of_d, of_a, of_b, of_c{', true' if ending else ''});"
    if each.a == "b1":
        operation = "AND" if "and" in each.option else "XOR"
        product = (
            f"wmma::bmma_sync(of_d, of_a, of_b, of_c, wmma::experimental::bmmaBitOp{operation});"
        )
    store = (
        f"wmma::store_matrix_sync(({TYPES[each.d][1]}*)expected, of_d, {each.stride('d')},"
        f" wmma::mem_{z}_major);"
    )
    body = "\n    ".join([*lines, *fragments, *loads, product, store])
    return f"""
extern "C" __global__ void {each.name}(const void* pa, const void* pb, const void* pc, void* pd,
                                       void* expected) {{
    __shared__ alignas(128) int tile[2048];
    for (int i = threadIdx.x; i < 2048; i += 32) tile[i] = ((const int*)pb)[i];
    __syncwarp();
    {body}
}}"""


@pytest.fixture(scope="module", params=TARGETS)
def library(request, tmp_path_factory):
    source = "#include <mma.h>\nusing namespace nvcuda;\n" + "".join(map(kernel_of, PRODUCTS))
    path = write(str(tmp_path_factory.mktemp("wmma") / "of_ptx.cu"), source)
    return jitload.load(str(path), name="ptx_wmma", target=request.param), request.param


def memory_of(type_: str) -> torch.Tensor:
    """8 KB of small numbers of a type, or of any bits."""
    dtypes = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32}
    dtypes |= {"f32": torch.float32, "f64": torch.float64}
    if type_ in dtypes:
        dtype = dtypes[type_]
        return torch.randn(8192 // dtype.itemsize).to(dtype).view(torch.int32)
    return torch.randint(-(2**31), 2**31, (2048,)).int()


def test_products(library):
    kernels, target = library
    torch.manual_seed(0)
    for each in PRODUCTS:
        a, b, c = (memory_of(t).to(target) for t in (each.a, each.a, each.c))
        d, expected = (torch.zeros(2048, dtype=torch.int32, device=target) for _ in range(2))
        getattr(kernels, each.name)[1, 32](a, b, c, d, expected)
        assert torch.equal(d, expected), each
        assert d.count_nonzero() > 30, each


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("wmma.mma.sync.aligned.row.row.m16n16k8.f32.f32 {%0}, {%0}, {%0}, {%0};", "wmma.mma"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16 {%0}, [%0];", "8 registers where 1 are"),
        ("wmma.load.a.sync.aligned.row.m8n8k4.f16 {%0}, [%0];", "wmma.load.a"),
        ("wmma.store.d.sync.aligned.row.m16n16k8.s32 [%0], {%0};", "wmma.store.d"),
    ],
)
def test_what_there_is_not(tmp_path, statement, what):
    source = f'__global__ void k(int x) {{ asm volatile("{statement}" : "+r"(x)); }}'
    with pytest.raises(jitload.CompileError, match=what):
        jitload.load(str(write(str(tmp_path / "k.cu"), source)), name="no_wmma", target="cpu")
