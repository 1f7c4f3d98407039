"""Which local variables the checker is told of, and which `continue` goes past a barrier."""

import re

import pytest

from simulator.rewrite import rewrite


def marked(body: str, head: str = "__global__ void k(int n)") -> list[str]:
    out = rewrite(f"{head} {{\n{body}\n}}\n", "k.cu")
    return re.findall(r"SIMULATOR_UNSET\((\w+)\)", out)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("float sum, kept[4];", ["sum", "kept"]),
        ("float a = 1, b; unsigned c; long long d;", ["b", "c", "d"]),
        ("typename T::Row row, more[2][N]; std::array<float, 4> four;", ["row", "more", "four"]),
        ("alignas(16) float t[4]; [[maybe_unused]] int i;", ["t", "i"]),
        ("#ifdef A\nfloat x;\n#else\nhalf2 x;\n#endif", ["x", "x"]),
        ("for (int i = 0; i < n; i++) { float v; } do { int w; } while (n);", ["v", "w"]),
        ("if (n) { int a; } else { int b; } switch (n) { case 1: { int c; } }", ["a", "b", "c"]),
        ("float* p; float& r = x; float (&q)[4] = y; int i, *j;", ["i"]),
        ("return x; a * b; f(x); goto end; throw x; delete p; x = y; a < b;", []),
        ("struct Pair { float x; int y; }; union { int i; float f; } u; enum { A, B };", []),
        ("__shared__ float s[4]; extern __shared__ float d[]; static int i; const int c;", []),
        ("float x[2] = {1, 2}, y{3}; auto f = [](int i) -> float { float z = i; return z; };", []),
        ("part.finish<A<T, kRows, 4>>(x, y); float s = g<T, kRows, 4>(1); x = y, z; i++, j;", []),
        ('// float x;\nconst char* s = "float y;";', []),
    ],
)
def test_what_is_declared_without_a_value(body, names):
    assert marked(body) == names


def test_only_in_device_code():
    assert marked("float x;", "void host()") == []
    assert marked("float x;", "constexpr __device__ int f()") == []
    assert marked("float x;", "template <class T> __device__ __forceinline__ T f(T y)") == ["x"]


def test_what_follows_keeps_its_line_and_column():
    text = "__global__ void k(int* p) {\n    int a; p[0] = a;\n}\n"
    lines = rewrite(text, "k.cu").split('"k.cu"\n')[1].splitlines()
    assert lines[2] == "#line 2"
    assert lines[3] == text.splitlines()[1].replace("int a;", "      ")
    dropped = "__global__ void k(int* p) {\n#if 0\n    int a; p[0] = a;\n#endif\n}\n"
    assert rewrite(dropped, "k.cu").split('"k.cu"\n')[1] == dropped


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("for (;;) { if (n) continue; __syncthreads(); }", 1),
        ("while (n) { if (n) continue; else n = 1; for (;;) { __syncthreads(); } }", 1),
        ("do { continue; __syncthreads(); } while (n);", 1),
        ("for (;;) { __syncthreads(); if (n) continue; }", 0),
        ("for (;;) { for (;;) { continue; } __syncthreads(); }", 0),
        ("for (;;) if (n) continue; __syncthreads();", 0),
    ],
)
def test_who_goes_past_a_barrier(body, count):
    out = rewrite(f"__global__ void k(int n) {{ {body} }}", "k.cu")
    assert out.count("{ SIMULATOR_SKIPS_BARRIER continue; }") == count


@pytest.mark.parametrize(
    ("function", "count"),
    [
        ("__global__ void k(int n) { if (n) return; f(n); }", 1),
        ("__global__ void k(int n) { if (n) return; __syncthreads(); return; }", 2),
        ("__device__ int f(int n) { if (n) return 1; __syncthreads(); return 2; }", 1),
        ("__device__ int f(int n) { return n; }", 0),
        ("int f(int n) { if (n) return 1; __syncthreads(); return 2; }", 0),
    ],
)
def test_who_returns_early(function, count):
    out = rewrite(function, "k.cu")
    assert out.count("__quit") == count
