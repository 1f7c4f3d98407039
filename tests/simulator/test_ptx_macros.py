"""PTX that macros put together."""

from __future__ import annotations

import pytest
import torch

import jitload
from simulator.device_code import Load
from simulator.ptx import Macros
from simulator.rewrite import Unsupported, rewrite
from simulator.scan import blank

TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]

HEADER = """
#define SPACE "global"
#define LOAD_FROM(space, type, letter, x, p) \\
    asm volatile("ld." #space "." #type " %0, [%1];" : "=" letter(x) : "l"(p))
"""
SOURCE = """
#include <stdint.h>
#include "macros.h"

// Beside the template's literals, and for operands.
#define ADD(type) "add." #type " %0, %1, %2;"
#define OUT(x) "=r"(x)
#define IN(x) "r"(x)
#define TWO(f, x, y) f(x), f(y)
// Of an instruction's name, and nested.
#define DEFINE_BINARY(op, ...) \\
    __device__ uint32_t op##_of(uint32_t x, uint32_t y) { \\
        uint32_t z; \\
        asm(#op "." __VA_ARGS__ " %0, %1, %2;" : OUT(z) : TWO(IN, x, y)); \\
        return z; \\
    }
#define DEFINE_ALL DEFINE_BINARY(min, "u32") DEFINE_BINARY(xor, "b32")
DEFINE_ALL
// One name in two ways, one after the other.
#define NUMBER "5"
__device__ uint32_t five() {
    uint32_t x;
    asm("mov.u32 %0, " NUMBER ";" : "=r"(x));
    return x;
}
#undef NUMBER
#define NUMBER "7"
__device__ uint32_t seven() {
    uint32_t x;
    asm("mov.u32 %0, "
        NUMBER  // a comment
        ";" : "=r"(x));
    return x;
}
template <class T>
__device__ T loaded(const T* p) {
    T x;
    if constexpr (sizeof(T) == 4) LOAD_FROM(global, u32, "r", x, p);
    return x;
}

__global__ void macros(int* y, const int* x) {
    uint32_t sum, first;
    asm(ADD(u32) : OUT(sum) : TWO(IN, x[0], x[1]));
    asm("ld." SPACE ".u32 %0, [%1];" : "=r"(first) : "l"(x));
    y[0] = sum; y[1] = first; y[2] = min_of(x[0], x[1]); y[3] = xor_of(x[0], x[1]);
    y[4] = five(); y[5] = seven();
    y[6] = loaded(reinterpret_cast<const uint32_t*>(x) + 1);
    y[7] = __LINE__;
}
extern "C" void run(int* y, const int* x) { macros<<<1, 1>>>(y, x); }
"""


@pytest.mark.parametrize("target", TARGETS)
def test_texts_and_operands_of_macros_run(tmp_path, cache, target):
    (tmp_path / "macros.h").write_text(HEADER)
    path = tmp_path / "macros.cu"
    path.write_text(SOURCE)
    x = torch.tensor([12, 10], dtype=torch.int32, device=target)
    y = torch.zeros(8, dtype=torch.int32, device=target)
    jitload.load(str(path), name="test_ptx_macros", target=target).run(y, x)
    line = SOURCE[: SOURCE.index("__LINE__")].count("\n") + 1
    assert y.tolist() == [22, 12, 10, 6, 5, 7, 10, line]


EXPANSIONS = {
    "#define A(x) #x\nasm(A( ld.u32  [%1]));": 'asm("ld.u32 [%1]");',
    '#define A(x) #x\nasm(A(say "hi"));': r'asm("say \"hi\"");',
    "#define A(x, y) #x #y\n#define B A\nasm(B(a, (b, c)));": 'asm("a" "(b, c)");',
    '#define A(x) x##1\n#define m1 "one"\nasm(A(m));': 'asm("one");',
    '#define A A "x"\nasm(A);': 'asm(A "x");',
    "#define A(...) #__VA_ARGS__\nasm(A(a, b));": 'asm("a, b");',
    '#define A() "x"\nasm(A()\n);': 'asm("x" ) ;',
    "#define A(x) #x\n#define B(x) A(x)\n#define C c\nasm(B(C));": 'asm("c");',
    "#define C c\nvoid f(C) { g(C); }\nasm(C);": "asm(c);",
}


@pytest.mark.parametrize("text", EXPANSIONS)
def test_macros_are_replaced_as_by_the_preprocessor(text):
    expanded = Macros.of([text]).expanded(text, blank(text))
    assert expanded.count("\n") == text.count("\n")
    before, after = text.rpartition("asm(")[0], EXPANSIONS[text]
    assert " ".join(expanded.removeprefix(before).split()) == " ".join(after.split())


def test_without_ptx_of_macros_nothing_is_touched():
    text = '#define A "x"\n#define B asm("trap;")\nf(A); B; asm("trap;");'
    assert Macros.of([text]) == Macros()


@pytest.mark.parametrize(
    "definition",
    ['#ifdef OTHER\n#define SPACE "shared"\n#else\n#define SPACE "global"\n#endif', ""],
    ids=["of two kinds", "unknown"],
)
def test_what_a_macro_stands_for_may_be_unknown(definition):
    asm = 'asm("ld." SPACE ".u32 %0, [%1];" : "=r"(x) : "l"(p));'
    text = f"{definition}\n__device__ void f() {{ {asm} }}"
    with pytest.raises(Unsupported) as error:
        rewrite(text, "x.cu", Load.of([text]))
    assert error.value.line == text.count("\n") + 1
    assert "put together by macros (SPACE)" in error.value.message
