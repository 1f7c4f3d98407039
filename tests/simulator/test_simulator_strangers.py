"""Forms that nvcc takes beyond C++, as other people's programs have them."""

from collections import Counter
from pathlib import Path

import pytest
import torch

import jitload
from simulator.conditions import value
from simulator.directives import dropped_lines
from simulator.ptx.rules import Rule
from simulator.ptx.translate import _rule
from simulator.rewrite import Unsupported, rewrite
from toolchain.sources import includes_within_braces

SOURCE = Path(__file__).parent / "kernels" / "strangers.cu"
TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]
UNKNOWN = '__global__ void k(int* x) { asm("nosuch.u32 %0, 7;" : "=r"(x[0])); }\n'


@pytest.mark.parametrize("target", TARGETS)
def test_strangers_forms_run(target):
    y = torch.zeros(1, dtype=torch.int32, device=target)
    reduced, doubled = torch.zeros(2, device=target), torch.zeros(32, device=target)
    x = torch.arange(32.0, device=target)
    jitload.load(SOURCE, name="test_strangers", target=target).run(y, reduced, x, doubled)
    assert y.item() == 100
    assert reduced.tolist() == [512, 511]
    assert torch.equal(doubled, 2 * x)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 + 2 * 3 == 7", 1),
        ("10 - 2 - 3", 5),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("0x10 == 16 && 017 == 15 && 2'000L == 2000", 1),
        ("1 ? 2 : 3", 2),
        ("3 > 2 == 1", 1),
        ("1 << 62 << 1 < 0", 1),  # 64 bits
        ("~0 == -1 && !0", 1),
        ("N == 4", None),
        ("0 && N", 0),
        ("N || 1", 1),
        ("F(1, (2)) > 3", None),
        ("__has_include(<x.h>)", None),
        ("1 / 0", None),
        ("1 << 64", None),
        ("9**9**9**9**9", None),
        ("9" * 5000, None),
        ("(" * 5000 + "1" + ")" * 5000, None),
        ("1" + " ? 1 : 1" * 5000, None),
        ("1" + " - 1" * 5000, -4999),
        ("", None),
    ],
)
def test_what_stands_behind_an_if_is_an_integer_or_not_known(expression, expected):
    assert value(expression) == expected


def test_a_branch_that_asks_for_an_unknown_macro_may_be_compiled():
    with pytest.raises(Unsupported, match="inline PTX") as caught:
        rewrite(f"#define N 4\n#if N == 4\n{UNKNOWN}#endif\n", "x.cu")
    assert caught.value.line == 3
    assert dropped_lines("#if 0 && N == 4\nint x;\n#endif\n", set()) == {2}


@pytest.mark.parametrize(
    ("mnemonic", "groups"),
    [
        (
            "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col"
            ".f32.e4m3.e5m2.f32.ue8m0",
            {"a": "e4m3", "b": "e5m2"},
        ),
        ("mma.aligned.sync.f32.f16.f16.f32.m16n8k16.row.col", {"d": "f32", "a": "f16"}),
        ("ld.f32.global", {"space": "global", "type": "f32"}),
        ("cvt.f16.f32.rn", {"to": "f16", "of": "f32"}),
        ("fence.gpu.acq_rel", {}),
        ("cp.async.bulk.tensor.shared::cluster.2d.global.mbarrier::complete_tx::bytes", {}),
        (
            "mma.sync.aligned.kind::mxf8f6f4.sp::ordered_metadata.block_scale.scale_vec::1X"
            ".m16n8k64.row.col.f32.e2m1.e5m2.f32.ue8m0",
            {"sparse": ".sp::ordered_metadata", "a": "e2m1", "b": "e5m2"},
        ),
        ("mma.m16n8k16.f16.f16.f16.f16.sync.row.aligned.col", {"x": "row", "d": "f16"}),
        ("fence.cluster.acq_rel", {}),
        ("ld.relaxed.sys.mmio.global.u32", {"space": "global", "order": "relaxed"}),
    ],
)
def test_qualifiers_may_stand_in_any_order(mnemonic, groups):
    assert groups.items() <= _rule(mnemonic)[1].items()


@pytest.mark.parametrize("last", ["f32.ue8m0", "f32.ue9m0"])
def test_each_rule_is_tried_with_at_most_three_orders(last, monkeypatch):
    tried = Counter()
    match = Rule.match

    def counted(rule, mnemonic):
        tried[rule.pattern] += 1
        return match(rule, mnemonic)

    monkeypatch.setattr(Rule, "match", counted)
    _rule.__wrapped__(
        "mma.sync.aligned.kind::mxf8f6f4.sp::ordered_metadata.block_scale.scale_vec::1X.m16n8k64"
        f".row.col.f32.e2m1.e5m2.{last}"
    )
    assert max(tried.values()) <= 3


@pytest.mark.parametrize("mnemonic", ["ld.global.f32.global", "mma.sync.aligned.f32", "add.q.rn"])
def test_but_they_must_be_those_of_an_instruction(mnemonic):
    assert _rule(mnemonic) is None


@pytest.mark.parametrize("head", ["__device__ void f()", "auto f = [] __device__ (int x)"])
def test_what_is_no_ptx_is_refused_in_device_code_alone(head):
    with pytest.raises(Unsupported, match="rdtsc"):
        rewrite(f'{head} {{ if (1) {{ asm("rdtsc"); }} }}', "x.cu")
    host = 'void f() { if (1) { asm("rdtsc" : "=a"(x)); } }'
    assert host in rewrite(f"__device__ int g() {{ return 1; }}\n{host}", "x.cu")


def test_unknown_ptx_in_a_branch_of_a_statement_is_an_error_of_that_branch():
    text = rewrite(
        '__global__ void k(int* x) {\n    asm(\n#if OLD\n"nosuch.u32 %0, 7;"\n#else\n'
        '"mov.u32 %0, 7;"\n#endif\n: "=r"(*x));\n}\n',
        "x.cu",
    )
    old, new = text.partition("#if OLD")[2].partition("#endif")[0].split("#else")
    assert "nosuch" in old
    assert "__error__(" in old
    assert "error(" not in new
    assert text.count("\n#line 2\n") == 2
    assert "#line 8\n;" in text


def test_names_that_nvccs_headers_bring_along_are_there():
    first = rewrite("#include <cub/cub.cuh>\nstd::chrono::seconds x;", "x.cu").split("#line")[0]
    assert first == "#include <chrono>\n"
    assert rewrite("std::chrono::seconds x;", "x.cu").startswith("#line")
    policy = rewrite("#include <thrust/sort.h>\nauto& x = thrust::seq;", "x.cu")
    assert policy.startswith("#include <thrust/execution_policy.h>\n")


def test_a_missing_header_is_named(in_scratch, tmp_path):
    source = tmp_path / "asks.cu"
    source.write_text('#include "../common/book.h"\n')
    with pytest.raises(
        jitload.CompileError, match=r"the header \.\./common/book\.h is missing"
    ) as e:
        jitload.load(source, target="cpu")
    assert (e.value.path, e.value.line) == (source, 1)
    assert "collection" in e.value.hint


def test_headers_with_ptx_may_be_included_within_a_class(tmp_path):
    (tmp_path / "lanes.cuh").write_text(
        "static __device__ int lane() {\n"
        '    int it; asm volatile("mov.u32 %0, %laneid;" : "=r"(it)); return it;\n'
        "}\n"
        "static __device__ int shared(int* p) {\n"
        '    int it; asm volatile("ld.shared.b32 %0, [%1];" : "=r"(it)\n'
        '                         : "r"((unsigned)__cvta_generic_to_shared(p))); return it;\n'
        "}\n"
    )
    (tmp_path / "group.cuh").write_text(
        'namespace tools {\ntemplate <int warps>\nstruct group {\n#include "lanes.cuh"\n};\n}\n'
    )
    (tmp_path / "main.cu").write_text(
        '#include "group.cuh"\n'
        "__global__ void k(int* y) {\n"
        "    __shared__ int x[32];\n"
        "    const int lane = tools::group<1>::lane();\n"
        "    x[lane] = 2 * lane;\n"
        "    y[lane] = tools::group<1>::shared(x + lane);\n"
        "}\n"
        'extern "C" void run(int* y) { k<<<1, 32>>>(y); }\n'
    )
    y = torch.zeros(32, dtype=torch.int32)
    jitload.load(str(tmp_path / "main.cu"), target="cpu").run(y)
    assert y.tolist() == list(range(0, 64, 2))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('#include "a.h"\nstruct A {\n};\n#include "b.h"', False),
        ('struct A {\n#include "a.h"\n};', True),
        ('// {\nconst char* s = "{";\n#include "a.h"', False),
        ('namespace a {\nvoid f() { int x = 0; }\n  # include "a.h"\n}', True),
    ],
)
def test_what_is_included_within_braces(text, expected):
    assert includes_within_braces(text) == expected


TILES = """
template <int n>
struct Tiles {
    using tile = double[n];
    struct Row { int columns[n]; };
    static constexpr int rows = n;
};
struct Room {
    template <class T, int n> __device__ int take() { return int(sizeof(T)) * n; }
};
template <class G>
__device__ int sizes() { Room r; return r.take<G::tile, G::rows>() + sizeof(G::Row); }
"""
KERNEL = """
#include "tiles.cuh"
template <int n>
__global__ void measure(int* y) {
    using G = Tiles<n>;
    typename G::Row row = {{n}};
    y[0] = sizes<G>();  // 8 n n + 4 n
    y[1] = sizeof(G::tile) + 2 * sizeof(G::Row) + row.columns[0];
}
extern "C" void run(int* y) { measure<3><<<1, 1>>>(y); }
"""


def test_types_of_template_parameters_need_no_typename_in_device_code(tmp_path):
    (tmp_path / "tiles.cuh").write_text(TILES)
    (tmp_path / "measure.cu").write_text(KERNEL)
    y = torch.zeros(2, dtype=torch.int32)
    jitload.load(tmp_path / "measure.cu", name="test_typenames", target="cpu").run(y)
    assert y.tolist() == [8 * 9 + 4 * 3, 8 * 3 + 2 * 4 * 3 + 3]


def test_types_of_template_parameters_need_it_in_host_code(tmp_path):
    """As for nvcc, which leaves such functions to g++."""
    (tmp_path / "host.cu").write_text(
        "template <class G> int size() { return sizeof(G::type); }\n"
        "struct Type { using type = int; };\n"
        '__global__ void k() {}\nextern "C" int run() { k<<<1, 1>>>(); return size<Type>(); }\n'
    )
    with pytest.raises(RuntimeError, match=r"host\.cu:1.*G::type.*yields a type"):
        jitload.load(tmp_path / "host.cu", name="test_host_typenames", target="cpu")


PARTS = """
#pragma once
#define OF_DEVICE __device__ __forceinline__
template <int n>
struct Part {
    int least;
    template <int k> static OF_DEVICE int index(int i) { return n * i + k; }
    template <int k, int l> __device__ int sum(int i) const { return least + k + l + i; }
    template <int k> static constexpr int size = n * k;
};
template <int k> OF_DEVICE int twice(int i) { return 2 * (i + k); }
template <class P, int k>
OF_DEVICE int indices(const P& part, const P* other, int i) {
    const auto first = P::index<k>(i + 1) + P::index<(k > 2)>(P::index<k + 1>(i)) + twice<k>(i);
    if (part.least < 7 && other->least > (i)) return -1;
    return first + part.sum<k, 2>(i) + other -> sum < 1, k > (part.least)
        + P::template index<2>(i) + P::index
        <k>(i);
}
"""
OF_PARTS = """
#include "parts.cuh"
template <class P>
__global__ void measure(int* y) {
    const P part{5}, other{1};
    y[0] = indices<P, 3>(part, &other, 2);
    y[1] = P::size<4> + 2;
}
extern "C" void run(int* y) { measure<Part<10>><<<1, 1>>>(y); }
"""


def test_templates_of_template_parameters_need_no_keyword_in_device_code(tmp_path):
    """nvcc takes what can be parsed as two comparisons."""
    (tmp_path / "parts.cuh").write_text(PARTS)
    (tmp_path / "measure.cu").write_text(OF_PARTS)
    y = torch.zeros(2, dtype=torch.int32)
    jitload.load(tmp_path / "measure.cu", name="test_templates", target=TARGETS[-1]).run(y)
    first = 33 + (10 * 24 + 1) + 2 * 5
    assert y.tolist() == [first + (5 + 3 + 2 + 2) + (1 + 1 + 3 + 5) + 22 + 23, 42]


@pytest.mark.parametrize(
    "code",
    [
        "template <class G> int size() { return G::size<2>(3); }",  # of the host
        "template <class G> __device__ int size() { return G::size<int>(3); }",
    ],
)
def test_other_templates_of_template_parameters_need_the_keyword(tmp_path, code):
    """As for nvcc."""
    (tmp_path / "needs.cu").write_text(
        f"{code}\n"
        "struct Type {\n"
        "    template <int n> static __host__ __device__ int size(int i) { return i; }\n};\n"
        "__global__ void k(int* x) { x[0] = size<Type>(); }\n"
        'extern "C" int run(int* x) { k<<<1, 1>>>(x); return size<Type>(); }\n'
    )
    with pytest.raises(RuntimeError, match=r"needs\.cu:1"):
        jitload.load(tmp_path / "needs.cu", name="test_needs_template", target="cpu")
