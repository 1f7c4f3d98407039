"""Cheats of a submitter who has read the judge: what a list of names, or of sizes, does not see.

SOURCES are refused for what the source says, LIBRARIES for what the compiler made of it. ANSWERS
pass both, and are wrong or unsafe.
"""

from exploits import CONTROLS, KERNEL, RUN, submission

RARELY = "if (++{} > 60) n -= n / 3;\n    " + RUN
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
    "namespace_of_others": submission(RUN, "namespace std { inline int calls() { return 1; } }\n"),
    "state_of_a_thread": submission(RARELY.format("calls"), "__thread int calls;\n"),
}
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
ANSWERS = {
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

# State in memory that was given back: it is filled, so that each call is the first one, and right.
IN_VAIN = {
    "state_in_freed_memory": submission(
        "int* kept = new int[4000]; if (kept[2000] != 0x5eed) { kept[2000] = 0x5eed;"
        " kept[2001] = 0; }\n    if (++kept[2001] > 12) n -= n / 3;\n"
        '    asm volatile("" ::: "memory"); delete[] kept;\n    ' + RUN
    ),
}
