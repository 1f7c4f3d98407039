"""Which of the simulator's headers a source gets, and where a kernel's address keeps its type."""

import pytest

from simulator.device_code import Load
from simulator.needs import headers
from simulator.rewrite import Unsupported, rewrite


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("k<<<1, 32>>>(x); cudaMemcpy(x, y, n, cudaMemcpyDefault);", []),
        ("cudaGraphicsMapFlags texture2 = cudaTexts();", []),
        ("cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);", ["graphs"]),
        ("cudaGraph_t graph;", ["graphs"]),
        ("cudaLaunchKernel((void*)k, 1, 1, 0);", ["kernel_address"]),
        ("float y = tex2D<float>(t, 0, 0);", ["textures"]),
        ("cudaArray_t a; cudaMallocArray(&a, &d, 8, 8);", ["textures"]),
        ("cudaMemPool_t pool;", ["pools"]),
        ("y = __nv_atomic_load_n(x, __NV_ATOMIC_RELAXED);", ["nv_atomics"]),
        ("cudaStreamAttrValue value;", ["stream_attributes"]),
        ("CUlaunchAttribute attribute;", ["stream_attributes"]),
    ],
)
def test_a_source_gets_the_headers_that_it_speaks_of(code, wanted):
    assert headers(code) == [f"simulator/{name}.h" for name in wanted]
    text = rewrite(code, "x.cu") if "Graphics" not in code else ""
    assert all(f"#include <simulator/{name}.h>\n" in text for name in wanted)


def addressed(code: str, launching: str = "") -> str:
    """Without what comes before the code; `launching` is another file's."""
    text = rewrite(code, "x.cu", Load.of([code, launching]))
    return text.partition('#line 1 "x.cu"\n')[2]


@pytest.mark.parametrize(
    ("cast", "wanted"),
    [
        ("(void *)k", "SIMULATOR_ADDRESS(k)"),
        ("(const void*) ns::k<float, 4>", "SIMULATOR_ADDRESS(ns::k<float, 4>)"),
        ("(void*)&k", "SIMULATOR_ADDRESS(&k)"),
        ("reinterpret_cast<void*>(k<T>)", "SIMULATOR_ADDRESS(k<T>)"),
        ("reinterpret_cast<const void *>(&k)", "SIMULATOR_ADDRESS(&k)"),
        (
            "reinterpret_cast<void const*>(\n&k<decltype(x), T>)",
            "SIMULATOR_ADDRESS(&k<decltype(x), T>)",
        ),
        ("(void*)table[i]", None),
        ("(void*)p->next", None),
        ("(void*)make(n)", None),
        ("(void*)(p + 1)", None),
    ],
)
def test_a_cast_keeps_the_kernels_type(cast, wanted):
    code = f"cudaLaunchKernel({cast}, grid, block, arguments, 0, stream);"
    assert addressed(code) == code.replace(cast, wanted or cast)


def test_casts_stay_where_no_kernel_is_launched_by_its_address():
    assert addressed("free((void*)p);") == "free((void*)p);"


def test_another_file_may_launch_it():
    assert (
        addressed("p = (void*)k;", "cudaLaunchKernelExC(&c, p, a);") == "p = SIMULATOR_ADDRESS(k);"
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("cudaMipmappedArray_t levels;", "no mipmaps"),
        ("cudaGraphConditionalHandle handle;", "conditional nodes"),
        ("cudaGraphicsGLRegisterBuffer(&r, b, 0);", "graphics"),
        ("cuModuleLoadData(&module, ptx);", "does not load code"),
        ("cudaImportExternalMemory(&memory, &description);", "does not share"),
    ],
)
def test_what_is_refused_says_where_and_why(code, message):
    with pytest.raises(Unsupported, match=message) as caught:
        rewrite(f"int first;\n{code}\n", "x.cu")
    assert caught.value.line == 2
    assert caught.value.hint
