"""What of a source and of its objects a build in parts is made of."""

import subprocess
from pathlib import Path

import pytest

from toolchain import parts

pytestmark = pytest.mark.skipif(not parts.SUPPORTED, reason="here every build is whole")


@pytest.mark.parametrize(
    "statement",
    [
        "template void f<float>(float* x);",
        "template decltype(f<float>) f<float>;",
        "#define BOTH(T) \\\n  template decltype(f<T>) f<T>; \\\n  template decltype(g<T>) g<T>;",
    ],
)
def test_explicit_instantiations_of_functions_are_left_out(statement):
    left = parts.without_instantiations(f"int a;\n{statement}\nint b;\n")
    assert "f<" not in left
    assert "g<" not in left
    assert left.count("\n") == statement.count("\n") + 3
    assert left.count("\\") == statement.count("\\")
    assert left.startswith("int a;")
    assert left.endswith("int b;\n")


@pytest.mark.parametrize(
    "text",
    [
        "template <class T> void f(T* x) {}",
        "template class Row<float>;",
        "extern template void f<float>(float*);",
        "x.template take<float>(1);",
        "// a template of the kernel;\nint a;",
        'const char* a = "template b;";',
    ],
)
def test_what_is_no_explicit_instantiation_stays(text):
    assert parts.without_instantiations(text) == text


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def compiled(name: str, text: str) -> Path:
    Path(f"{name}.cpp").write_text(text)
    command = ["g++", "-O1", "-fPIC", "-c", f"{name}.cpp", "-o", f"{name}.o"]
    subprocess.run(command, check=True)
    return Path(f"{name}.o").absolute()


SOURCE = """
namespace row {
template <class T> struct Pair { T a, b; };
template <class T> __attribute__((noinline)) T sum(Pair<T> x) { return x.a + x.b; }
template <class T> void add(Pair<T> x, T* y) { *y = sum(x); }
template void add<float>(Pair<float>, float*);
template void add<double>(Pair<double>, double*);
}
int plain() { return 1; }
"""
BINDING = """
namespace row {
template <class T> struct Pair { T a, b; };
template <class T> void add(Pair<T> x, T* y);
}
int plain();
void call() {
    float x;
    double y;
    row::add({1.0f, 2.0f}, &x);
    row::add({1.0, 2.0}, &y);
    plain();
}
"""
FLOAT, DOUBLE = "_ZN3row3addIfEEvNS_4PairIT_EEPS2_", "_ZN3row3addIdEEvNS_4PairIT_EEPS2_"


NAMED = parts.Named(frozenset(), frozenset(), frozenset())


def test_launchers_are_what_the_binding_calls_and_the_source_has(here):
    source, binding = compiled("source", SOURCE), compiled("binding", BINDING)
    found = parts.functions(source, (binding,), NAMED, "1")
    assert found.keys() == {FLOAT, DOUBLE, "_Z5plainv"}
    assert found["_Z5plainv"] == ("", [], [], "", "")
    assert found[FLOAT].statement == "template void row::add<float>(row::Pair<float>, float*);"
    assert found[FLOAT].calls == ["_ZN3row3sumIfEET_NS_4PairIS1_EE"]
    made = parts.part("a", found, [FLOAT], "kept")
    assert (made.held, made.jumps, made.kept) == (((FLOAT, FLOAT),), (), "kept")
    text = parts.without_instantiations(SOURCE)
    part = compiled("part", "\n".join([text, *made.statements]))
    assert parts.functions(part, (binding,), NAMED, "2").keys() == {FLOAT, "_Z5plainv"}


def test_what_a_function_with_a_very_long_name_calls_is_found(here):
    """Binutils' readelf cuts off the names of sections."""
    long = "float, " * 400
    text = SOURCE.replace("return x.a + x.b;", "return twice<T, LONG double>(x.a);").replace(
        "template <class T> __attribute__((noinline)) T sum",
        """template <class T> __attribute__((noinline)) T half(T x) { return x / 2; }
template <class T, class... Ts> __attribute__((noinline)) T twice(T x) { return half(x); }
template <class T> __attribute__((noinline)) T sum""",
    )
    source = compiled("source", text.replace("LONG ", long))
    calls = parts.functions(source, (compiled("binding", BINDING),), NAMED, "8")[FLOAT].calls
    assert max(map(len, calls)) > 300
    assert "_ZN3row4halfIfEET_S1_" in calls


@pytest.mark.parametrize(
    ("use", "is_call"),
    [('auto p = &kernel; asm("" : : "r"(p));', False), ("kernel(1);", True)],
)
def test_a_kernel_may_be_named_for_its_address_alone(here, use, is_call):
    declared = '__attribute__((visibility("hidden"))) void kernel(int);'
    user = compiled("user", f"{declared} int use() {{ {use} return 0; }}")
    assert parts.calls_one_of(user, ["_Z6kerneli"]) is is_call
    assert not parts.calls_one_of(user, ["_Z5otheri"])


def test_a_source_with_variables_or_names_that_cannot_be_written_has_none(here):
    binding = compiled("binding", BINDING)
    assert not parts.functions(compiled("source", f"{SOURCE}\nint count;"), (binding,), NAMED, "3")
    counting = SOURCE.replace("{ return 1; }", "{ static int n = 0; return ++n; }")
    assert not parts.functions(compiled("source", counting), (binding,), NAMED, "4")
    named = NAMED._replace(constants=frozenset({"n"}))
    assert parts.functions(compiled("source", counting), (binding,), named, "5")


@pytest.mark.parametrize(
    ("type_", "value"),
    [("constexpr int", "{1, 2}"), ("const int", "{1, 2}"), ("const char* const", '{"a", "b"}')],
)
def test_a_constant_of_an_inline_function_is_no_variable(here, type_, value):
    """Its symbol is weak, as that of a variable is."""
    binding = compiled("binding", BINDING)
    inline = f"inline auto* nth(int n) {{ static {type_} all[] = {value}; return &all[n]; }}"
    text = f"{inline}\nconst void* used(int n) {{ return nth(n); }}\n{SOURCE}"
    assert parts.functions(compiled("source", text), (binding,), NAMED, f"6 {type_}")
    changing = text.replace("constexpr ", "").replace("const char* const", "const char*")
    changing = changing.replace("static const int", "static int")
    assert not parts.functions(compiled("source", changing), (binding,), NAMED, f"7 {type_}")


def test_a_text_names_kernels_and_the_variables_that_do_not_change():
    text = """
    template <class T> __global__ __launch_bounds__(kMost) void scale(T* x, int n) {}
    template <class T> __global__ void with_default(T* x, int n = size(3)) {}
    template <class T> __global__ void deduced(T* x) {}
    void launch(float* x) { deduced<<<1, 32>>>(x), scale<float><<<1, 32>>>(x, 1); }
    static const auto once = [] { return 1; }();
    static const int both = 1;
    static int both = 2;
    static int counts[3] = {};
    """
    named = parts.Named.of([text])
    assert named.kernels >= {"scale", "deduced"}
    assert "with_default" not in named.kernels
    assert named.named_alone == {"deduced"}
    assert named.constants == {"once"}
    assert not parts.Named.of([text, "cudaLaunchKernel(f, 1, 1, nullptr);"]).kernels


def test_jumps_keep_every_argument(here):
    """What is asked at the first call gets the number; what it returns gets the arguments."""
    declared = ", ".join(f"long a{n}, double x{n}" for n in range(9))
    weighed = " + ".join(f"{n + 1} * a{n} + {n + 10} * x{n}" for n in range(9))
    given = ", ".join(f"{n * n}, {n + 0.5}" for n in range(9))
    wanted = sum((n + 1) * n * n + (n + 10) * (n + 0.5) for n in range(9))
    Path("jumps.cpp").write_text(parts.jumps(["other", "wanted"]))
    Path("main.cpp").write_text(
        f"""
        extern "C" {{
        struct Pair {{ double sum; long number; double asked; }};
        Pair wanted({declared});
        extern void* jitload_find;
        extern void* jitload_slots[2];
        }}
        int asked = 0;
        Pair target({declared}) {{ return {{{weighed}, 7, double(asked)}}; }}
        void* find(long number, long* registers) {{
            if (number == 1 && registers[2] == 1) ++asked;
            jitload_slots[number] = reinterpret_cast<void*>(target);
            return jitload_slots[number];
        }}
        int main() {{
            jitload_find = reinterpret_cast<void*>(find);
            for (int call = 0; call < 2; ++call) {{
                Pair it = wanted({given});
                if (it.sum != {wanted} || it.number != 7 || it.asked != 1) return 1;
            }}
        }}
        """
    )
    subprocess.run(["g++", "main.cpp", "-c", "-o", "main.o"], check=True)
    subprocess.run(["g++", "-fPIC", "-c", "jumps.cpp", "-o", "jumps.o"], check=True)
    subprocess.run(["g++", "main.o", "jumps.o", "-o", "main"], check=True)
    subprocess.run(["./main"], check=True)
