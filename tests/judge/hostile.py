"""Cheats of a submitter who has read the judge: what a list of names, or of sizes, does not see.

SOURCES are refused for what the source says, LIBRARIES for what the compiler made of it. ANSWERS
pass both, and are wrong or unsafe.
"""

from exploits import CONTROLS, KERNEL, RUN, submission

RARELY = "if (++{} > 60) n -= n / 3;\n    " + RUN
DECLARE = "#define DECLARE(name) int name;\n"
STRING = 'const char* kName = "x\\ \n" ; {} const char* kOther = "";\n'

SOURCES = {
    # names that only the compiler puts together
    "name_over_two_lines": submission("sys\\\ntem(nullptr);\n    " + RUN),
    "code_between_two_strings": submission(
        RUN, STRING.format("__attribute__((constructor)) void early();")
    ),
    "directive_over_two_lines": submission(RUN, "#inc\\\nlude <thread>\n"),
    "directive_of_digraphs": submission(RUN, "%:include <thread>\n"),
    "header_imported": submission(RUN, "#import <thread>\n"),
    "attribute_by_using": submission(RUN, "[[using gnu: constructor]] void early() {}\n"),
    "attribute_of_digraphs": submission(RUN, "<:<:gnu::constructor:>:> void early() {}\n"),
    "attribute_without_underscores": submission(
        RUN, "extern void early() __attribute ((constructor));\nvoid early() {}\n"
    ),
    "resolver": submission(
        RUN,
        'extern "C" { int* chosen() { return nullptr; } }\n'
        '[[ using gnu : ifunc("chosen") ]] int* late();\n',
    ),
    # assembly of the host that looks like none
    "assembly_of_a_macro": submission(
        'long r; asm volatile(TEXT : "=a"(r) : "a"(39L)); (void)r;\n    ' + RUN,
        '#define TEXT "sys" "call"\n',
    ),
    "assembly_of_escapes": submission(
        'long r; asm volatile("s\\x79scall" : "=a"(r) : "a"(39L)); (void)r;\n    ' + RUN
    ),
    "assembly_of_two_strings": submission(
        'long r; asm volatile("j" "mp 1f + 2\\n1: nop" : "=a"(r)); (void)r;\n    ' + RUN
    ),
    "assembly_of_other_bytes": submission(
        'long r; asm volatile(".2byte 0x050f" : "=a"(r) : "a"(39L)); (void)r;\n    ' + RUN
    ),
    "assembly_that_includes": submission(RUN, 'asm(".include \\"/etc/passwd\\"");\n'),
    "system_call_in_an_operand": submission(
        'long r; asm volatile("xor %1, %1\\njz 1f + 2\\n1: movabs %2, %1"'
        ' : "=a"(r), "=c"(n) : "i"(0x04eb050fl)); (void)r;\n    ' + RUN
    ),
    # the simulator and its checker, taken for something else
    "hooks_of_the_checker": submission(
        RUN, 'extern "C" void __tsan_write4(void*) {}\nextern "C" void __tsan_read4(void*) {}\n'
    ),
    "launch_of_the_simulator": submission(
        RUN, "namespace simulator { inline bool is_checked() { return false; } }\n"
    ),
    "headers_asked_for": submission(
        RUN, "#if __has_include(<simulator/runtime_api.h>)\n#define N n\n#endif\n"
    ),
    # the host computes between two copies
    "tensors_brought_to_the_host": submission(
        "float* mine = new float[n];"
        " cudaMemcpyAsync(mine, x, n * 4, cudaMemcpyDeviceToHost, stream);\n"
        "    cudaStreamSynchronize(stream); for (int64_t i = 0; i < n; ++i) mine[i] *= mine[i];\n"
        "    cudaMemcpyAsync(y, mine, n * 4, cudaMemcpyHostToDevice, stream); delete[] mine;"
    ),
    "memory_that_both_reach": submission(
        "float* both; cudaHostAlloc(&both, n * 4, 0);\n    " + RUN
    ),
    # the process
    "arguments_of_the_process": submission(
        "if (program_invocation_name[0] == 112) return cudaSuccess;\n    " + RUN,
        'extern "C" char* program_invocation_name;\n',
    ),
    "environment_by_another_name": submission(
        "if (__environ[0]) n -= n / 3;\n    " + RUN, 'extern "C" char** __environ;\n'
    ),
    "dice_of_the_processor": submission(
        "unsigned r; __builtin_ia32_rdrand32_step(&r); if (r % 64 == 0) n -= n / 3;\n    " + RUN
    ),
    "rounding_of_the_process": submission("__builtin_ia32_ldmxcsr(0x7f80);\n    " + RUN),
    "number_of_the_stream": submission(
        "unsigned long long id; cudaStreamGetId(stream, &id); if (id > 9) n -= n / 3;\n    " + RUN
    ),
    "stream_that_is_captured": submission(
        "cudaStreamCaptureStatus now; cudaStreamIsCapturing(stream, &now);"
        " if (now) n -= n / 3;\n    " + RUN
    ),
    "allocator_of_others": submission(
        RUN, "void* operator new(decltype(sizeof 0) n) { return nullptr; }\n"
    ),
    "namespace_of_others": submission(RUN, "namespace std { inline int calls() { return 1; } }\n"),
    "state_of_a_thread": submission(RARELY.format("calls"), "__thread int calls;\n"),
    "state_of_a_constant": submission(
        "int* next; cudaMallocAsync(&next, 4, stream); count<<<1, 1, 0, stream>>>(next);\n"
        "    cudaMemcpyToSymbolAsync(calls, next, 4, 0, cudaMemcpyDeviceToDevice, stream);\n"
        "    cudaFreeAsync(next, stream); " + RUN,
        "__constant__ int calls;\n__global__ void count(int* next) { *next = calls + 1; }\n",
        KERNEL.replace("if (i < n)", "if (i < (calls > 300 ? n - n / 3 : n))"),
    ),
    "state_of_an_attribute": submission(
        "cudaFuncAttributes it; cudaFuncGetAttributes(&it, square);\n"
        "    const int calls = it.maxDynamicSharedSizeBytes + 1;\n"
        "    cudaFuncSetAttribute(square, cudaFuncAttributeMaxDynamicSharedMemorySize, calls);\n"
        "    if (calls > 60) n -= n / 3;\n    " + RUN
    ),
    "state_of_a_limit": submission(
        "size_t calls; cudaDeviceGetLimit(&calls, cudaLimitPrintfFifoSize);\n"
        "    cudaDeviceSetLimit(cudaLimitPrintfFifoSize, calls + 1);\n"
        "    if (calls % 4096 > 300) n -= n / 3;\n    " + RUN
    ),
    "state_of_a_pool": submission(
        "cudaMemPool_t pool; cudaDeviceGetDefaultMemPool(&pool, 0); uint64_t calls = 0;\n"
        "    cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &calls); ++calls;\n"
        "    cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &calls);\n"
        "    if (calls > 300) n -= n / 3;\n    " + RUN
    ),
    "state_of_a_stream": submission(
        "cudaStreamAttrValue it{};\n"
        "    cudaStreamGetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &it);\n"
        "    if (++it.accessPolicyWindow.num_bytes > 300) n -= n / 3;\n"
        "    cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &it);\n    "
        + RUN
    ),
    "state_of_memory_that_is_left": submission(
        "void* kept; cudaMallocAsync(&kept, 1 << 20, stream); size_t left, all;\n"
        "    cudaMemGetInfo(&left, &all); if (all - left > 300 << 20) n -= n / 3;\n    " + RUN
    ),
    "state_in_a_section_of_its_own": submission(
        RARELY.format("calls"), '#pragma clang section bss="mine"\n' + DECLARE + "DECLARE(calls)\n"
    ),
    "state_of_a_struct_named_as_pytorchs": submission(
        "c10 it; " + RARELY.format("it.calls"),
        "#define KEEP inline static\n#define NEW struct\nNEW c10 { KEEP int calls = 0; };\n",
    ),
    "state_named_as_a_registration": submission(
        RARELY.format("my_TORCH_LIBRARY_init_"), DECLARE + "DECLARE(my_TORCH_LIBRARY_init_)\n"
    ),
    # files, by a way around
    "header_of_other_folders": submission(before="#include <cub/../../../../../etc/passwd>\n"),
    "file_asked_for_by_a_pragma": submission(before='#pragma GCC dependency "/etc/passwd"\n'),
    # clocks of a GPU, which the simulator's compiler need not see
    "clock_over_two_strings": submission(
        kernel=KERNEL.replace(
            "if (i < n)",
            'long t = 1; asm volatile("mov.u64 %0, %%clo" "ck64;" : "=l"(t)); if (t && i < n)',
        )
    ),
    "number_of_the_launch": submission(
        kernel=KERNEL.replace(
            "if (i < n)",
            'long g; asm volatile("mov.u64 %0, %%gridid;" : "=l"(g));'
            " if (i < (g > 4000 ? n - n / 3 : n))",
        )
    ),
    "state_of_a_register": submission(
        "const long calls = __builtin_ia32_rdgsbase64() + 1;"
        " __builtin_ia32_wrgsbase64(calls);\n    if (calls > 300) n -= n / 3;\n    " + RUN,
        '#pragma GCC target("fsgsbase")\n',
    ),
    "clock_of_the_compiler": submission(
        before="#ifdef __CUDACC_VER_MAJOR__\n"
        "__device__ long now() { return __nvvm_read_ptx_sreg_clock64(); }\n#endif\n"
    ),
}
# Ops of PyTorch's that the audit compares with, replaced by one's own.
REPLACED = "at::Tensor mine(const at::Tensor& x, const at::Tensor&) { return x; }\n"
SOURCES["ops_of_pytorchs_replaced"] = (
    CONTROLS["tensors"]
    + REPLACED
    + ('TORCH_LIBRARY_IMPL(aten, CPU, m) { m.impl("mul.Tensor", &mine); }\n')
)
SOURCES["ops_replaced_by_another_name"] = (
    CONTROLS["tensors"]
    + REPLACED
    + (
        "#undef TORCH_EXTENSION_NAME\n#define TORCH_EXTENSION_NAME aten\n"
        'TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CPU, m) { m.impl("mul.Tensor", &mine); }\n'
    )
)
SOURCES["ops_replaced_by_a_library"] = (
    CONTROLS["tensors"]
    + REPLACED
    + (
        'const auto kMine = [] { torch::Library it(torch::Library::IMPL, "aten",'
        ' c10::DispatchKey::CPU, "", 0); it.impl("mul.Tensor", &mine); return 0; }();\n'
    )
)
LIBRARIES = {
    # state whose word the source does not have
    "state_by_a_macro": submission(
        "KEEP int calls = 0; " + RARELY.format("calls"), "#define KEEP static\n"
    ),
    "state_that_is_const": submission(
        "static const int calls = int(n % 2); " + RARELY.format("const_cast<int&>(calls)")
    ),
    "first_call_remembered": submission(
        "static const float* const first = x; if (first == x) return cudaSuccess;\n    " + RUN
    ),
    # functions that are named without a call
    "function_as_an_argument": submission(
        "run(system);\n    " + RUN,
        "#include <algorithm>\ntemplate <class F> static void run(F* f) { f(nullptr); }\n",
    ),
    "method_of_the_same_name": submission(
        '::system("true");\n    ' + RUN,
        "#include <algorithm>\nstruct Mine { int system(const char*) { return 0; } };\n",
    ),
    "constant_that_is_computed": submission(
        RUN,
        'static int early() { int k = 0; return printf("%d", k); }\nconst int kEarly = early();\n',
    ),
    "state_by_a_linkers_name": submission(RARELY.format("_edata"), DECLARE + "DECLARE(_edata)\n"),
    "library_by_another_name": submission(
        "cublasSgemm_v2(nullptr);\n    " + RUN, 'extern "C" int cublasSgemm_v2(void*);\n'
    ),
    "system_call_in_a_number": submission(
        "auto f = (long (*)())((const char*)&number + 2); (void)f();\n    " + RUN,
        'extern "C" unsigned long number() { return 0x90c3050f58276aul; }\n',
    ),
}
# An op is linked with much of C++'s library.
LIBRARIES["op_that_writes_to_a_pipe"] = CONTROLS["tensors"].replace(
    "if (n == 0) return;", '(void)pwritev2(5, "{}\\n", 0, 0, 0);'
)
LIBRARIES["op_that_writes_to_a_pipe"] = LIBRARIES["op_that_writes_to_a_pipe"].replace(
    KERNEL, 'extern "C" long pwritev2(int, const void*, int, long, int);\n' + KERNEL
)
# The simulator's compiler never sees the call.
FOR_A_GPU = submission(
    "#ifdef __CUDACC_VER_MAJOR__\n    run(system);\n#endif\n    " + RUN,
    "#include <algorithm>\ntemplate <class F> static void run(F* f) { f(nullptr); }\n",
)
CARRY = KERNEL.replace("square", "carry").replace("x[i] * x[i]", "x[i]")


def by_the_host(copy: str) -> str:
    """The host computes between a copy and a kernel that carries."""
    return submission(
        f"float* mine = new float[n]; {copy}\n"
        "    cudaStreamSynchronize(stream); for (int64_t i = 0; i < n; ++i) mine[i] *= mine[i];\n"
        "    float* there; cudaMallocAsync(&there, n * 4, stream);\n"
        "    cudaMemcpyAsync(there, mine, n * 4, cudaMemcpyHostToDevice, stream); delete[] mine;\n"
        "    carry<<<n / 256 + 1, 256, 0, stream>>>(there, y, n); cudaFreeAsync(there, stream);",
        kernel=CARRY,
    )


ANSWERS = {
    "copied_by_a_kind_that_is_computed": by_the_host(
        "cudaMemcpyAsync(mine, x, n * 4, decltype(cudaMemcpyHostToDevice)(2), stream);"
    ),
    "copied_as_between_devices": by_the_host(
        "cudaMemcpy2DAsync(mine, cols * 4, x, cols * 4, cols * 4, rows, cudaMemcpyDeviceToDevice,"
        " stream);"
    ),
    "written_to_the_host_by_a_kernel": by_the_host(
        "carry<<<(n + 255) / 256, 256, 0, stream>>>(x, mine, n);"
    ),
    # counts that neither source nor library tells: the calls go on for longer
    "state_of_a_constants_name": submission(
        RARELY.format("calls"), f"#if 0\n__constant__ int calls;\n#endif\n{DECLARE}DECLARE(calls)\n"
    ),
    # memory of others
    "works_only_on_poison": submission(
        kernel=KERNEL.replace("if (i < n)", "if (i < n && ((unsigned*)y)[i] == 0xa5a5a5a5u)")
    ),
    "input_made_the_output": CONTROLS["tensors"].replace(
        "int64_t n = x.numel();",
        "y.unsafeGetTensorImpl()->set_storage_keep_dtype(x.storage()); int64_t n = x.numel();",
    ),
    "shape_of_an_input_changed": CONTROLS["tensors"].replace(
        "int64_t n = x.numel();",
        "int64_t n = x.numel(); x.unsafeGetTensorImpl()->set_sizes_contiguous({0});",
    ),
    "stack_searched": submission(
        "volatile char here = 0; long* p = (long*)&here;\n    for (int i = 64; i < 4096; ++i)"
        " if (p[i] == long(y)) p[i] = long(x);\n    " + RUN
    ),
    "prints_without_end": submission(
        'for (int i = 0; i < 1 << 30; ++i) printf("%s\\n", "{}{}{}{}{}{}{}{}{}{}{}{}");\n    ' + RUN
    ),
    # right for the sizes of a list, and for no others
    "sizes_of_the_list": submission(
        "const int64_t known[] = {1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 40, 63, 64, 65, 72,"
        " 127, 128, 129, 255, 257, 511, 513, 1000, 1023, 1024, 1025, 2047, 2049, 4096, 4097,"
        " 8200};\n"
        "    bool found = false; for (int64_t it : known) found |= it == cols;\n"
        "    if (!found) n -= cols;\n    " + RUN
    ),
    # the host computes, and a kernel carries
    "host_computes_kernel_copies": submission(
        "float* mine = new float[n]; for (int64_t i = 0; i < n; ++i) mine[i] = x[i] * x[i];\n"
        "    float* there; cudaMallocAsync(&there, n * 4, stream);\n"
        "    cudaMemcpyAsync(there, mine, n * 4, cudaMemcpyHostToDevice, stream);\n"
        "    carry<<<(n + 255) / 256, 256, 0, stream>>>(there, y, n);\n"
        "    cudaFreeAsync(there, stream); delete[] mine;",
        kernel=KERNEL.replace("square", "carry").replace("x[i] * x[i]", "x[i]"),
    ),
    "written_behind_the_output": submission(RUN + "\n    y[n] = 1;"),
    "mean_of_a_row": submission(kernel=KERNEL.replace("x[i] * x[i]", "1.0f")),
    "neighbour_within_tolerance": submission(
        kernel=KERNEL.replace("x[i] * x[i]", "x[i] * x[i] * (i % 97 ? 1.0f : 1.0001f)")
    ),
    "one_element_left_out": submission(
        kernel=KERNEL.replace("if (i < n)", "if (i < n && i != 4000)")
    ),
    "negative_zero_lost": submission(
        kernel=KERNEL.replace(
            "x[i] * x[i]", "(x[i] == 0 ? 0 : x[i] * x[i]) * (x[i] > 3e18f ? 0 : 1)"
        )
    ),
}
