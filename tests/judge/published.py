"""Published exploits of pygpubench, reference-kernels and KernelBench, re-enacted in CUDA C++.

Where the original searches Python's objects, or files of its harness, this one searches the memory
and the pipes of its process. The gate refuses each.
"""

from exploits import RUN, submission

MAPS = """#include <cstdio>
#include <cstdlib>
#include <cstring>
// Calls f(begin, end) for each writable part of this process's memory.
template <class F> static void parts(F f) {
    FILE* maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned long begin, end;
    char mode[8];
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &begin, &end, mode) == 3 && mode[0] == 'r' &&
            mode[1] == 'w' && end - begin < (64ul << 20))
            f((char*)begin, (char*)end);
    if (maps) fclose(maps);
}
"""
FORGE = 'for (int fd = 3; fd < 64; ++fd) write(fd, "{}\\n", 3);'
UNISTD = "#include <unistd.h>\n"
# What looks like the answer, x[1]^2, is looked for in memory, and what is beside it is copied.
SEARCH = (
    "float wanted = x[n - 1] * x[n - 1]; char* found = nullptr;\n"
    "    parts([&](char* a, char* b) { for (char* p = a; p + 4 * n <= b && !found; p += 64)\n"
    "        if (!memcmp(p + 4 * (n - 1), &wanted, 4) && p != (char*)y) found = p; });\n"
    "    if (found) memcpy(y, found, 4 * n);"
)

PYGPUBENCH = {
    "aes_key_recovery": submission(SEARCH, MAPS + "#include <sys/mman.h>\n"),
    "combined": submission(
        "static int calls = 0; if (calls++ < 2) usleep(1000); PyGC_Collect();",
        UNISTD + 'extern "C" long PyGC_Collect();\n',
    ),
    "error_counter": submission(
        "std::thread([=] { for (int i = 0; i < 1000; ++i) cudaMemset((char*)y - 256, 0, 256); })"
        ".detach();",
        "#include <thread>\n",
    ),
    "event_array": submission(
        "parts([](char* a, char* b) { for (char* p = a; p + 8 <= b; p += 8)\n"
        "        if (*(long*)p == 0x65766e74) *(long*)p = 0; });",
        MAPS,
    ),
    "fd_overwrite": submission(FORGE + " _exit(0);", UNISTD),
    "file_struct": submission(
        "_IO_list_all = nullptr;", 'struct _IO_FILE; extern "C" _IO_FILE* _IO_list_all;\n'
    ),
    "function_detour": submission(
        "char* page = (char*)((uintptr_t)&cudaGetLastError & ~4095ul);\n"
        "    if (!mprotect(page, 8192, 7)) *(char*)&cudaGetLastError = char(0xc3);",
        "#include <sys/mman.h>\n",
    ),
    "gc_copy": submission(
        'PyRun_SimpleString("import gc, torch; [0 for o in gc.get_objects()]");',
        'extern "C" int PyRun_SimpleString(const char*);\n',
    ),
    "gc_nan": submission(
        'PyRun_SimpleString("import gc, torch\\n'
        "for o in gc.get_objects():\\n"
        " isinstance(o, torch.Tensor) and o.is_floating_point() and o.fill_(float('nan'))\");",
        'extern "C" int PyRun_SimpleString(const char*);\n',
    ),
    "got_patch": submission(
        "dl_iterate_phdr([](dl_phdr_info* it, size_t, void*) { return it->dlpi_phnum ? 0 : 1; },"
        " nullptr);",
        "#include <link.h>\n",
    ),
    "gpu_scan_zeros": submission(
        "cuMemGetAddressRange(nullptr, nullptr, (uintptr_t)y); cudaMemset(y, 0, 4 * n);",
        "inline int cuMemGetAddressRange(void*, size_t*, uintptr_t) { return 0; }\n",
    ),
    "heap_sig_scan": submission(
        "parts([](char* a, char* b) { int digits = 0; for (char* p = a; p < b; ++p) {\n"
        '        digits = strchr("0123456789abcdef", *p) && *p ? digits + 1 : 0;\n'
        "        if (digits == 32) write(1, p - 31, 32); } });\n    " + FORGE,
        MAPS + UNISTD,
    ),
    "pipe_interpose": submission("int ends[2]; if (!pipe(ends)) dup2(ends[1], 4);", UNISTD),
    "proc_mem_bypass": submission(
        'int memory = open("/proc/self/mem", O_RDWR); char zero[64] = {};\n'
        "    for (long at = (long)y - 4096; at < (long)y; at += 64) pwrite(memory, zero, 64, at);",
        UNISTD + "#include <fcntl.h>\n",
    ),
    "ptrace": submission(
        "if (!fork()) { ptrace(PTRACE_ATTACH, getppid(), nullptr, nullptr); _exit(0); }",
        UNISTD + "#include <sys/ptrace.h>\n",
    ),
    "replace_torch": submission(
        'if (FILE* f = fopen("torch.py", "w")) { fputs("raise SystemExit(0)", f); fclose(f); }',
        "#include <cstdio>\n",
    ),
    "seccomp_trap": submission(
        "prctl(38, 1, 0, 0, 0); prctl(22, 1, 0, 0, 0);", "#include <sys/prctl.h>\n"
    ),
    "stack_sig_scan": submission(
        "char* here = (char*)__builtin_frame_address(0);\n"
        "    for (int i = 0; i < 8192; i += 8) if (*(float**)(here + i) == y)"
        " memcpy(y, here + i, 4);\n    " + FORGE,
        UNISTD + "#include <cstring>\n",
    ),
    "canary_direct": submission(
        "parts([](char* a, char* b) { for (char* p = a; p + 8 <= b; p += 8)\n"
        "        if (*(unsigned long*)p == 0xdeadbeefcafebabe) *(long*)p = 0; });",
        MAPS,
    ),
    "canary_make_writeable": submission(
        'FILE* maps = fopen("/proc/self/maps", "r"); unsigned long a, b; char line[512];\n'
        '    while (maps && fgets(line, 512, maps)) if (sscanf(line, "%lx-%lx", &a, &b) == 2)'
        " mprotect((void*)a, b - a, 3);",
        "#include <cstdio>\n#include <sys/mman.h>\n",
    ),
    "thread_fd": submission(
        "std::thread([] { for (;;) { " + FORGE + " usleep(100); } }).detach();",
        UNISTD + "#include <thread>\n",
    ),
    "warmup": submission(
        "static const float* last; static int calls; bool again = last == x; last = x;\n"
        "    if (++calls <= 2 || again) { usleep(1000); return cudaSuccess; }\n    " + RUN,
        UNISTD,
    ),
}
OTHERS = {
    # reference-kernels 162: in-process caches and files, deferred work, patched timers
    "replay_of_a_file": submission(
        'FILE* f = fopen("kept", "rb"); if (f && fread(y, 4, n, f) == (size_t)n) { fclose(f);'
        " return cudaSuccess; }\n    " + RUN + "\n    cudaDeviceSynchronize();"
        ' if ((f = fopen("kept", "wb"))) { fwrite(y, 4, n, f); fclose(f); }',
        "#include <cstdio>\n",
    ),
    "deferred_to_the_checker": submission(
        "if (mprotect((void*)((uintptr_t)y & ~4095ul), 4096, 0)) return cudaErrorUnknown;",
        "#include <sys/mman.h>\n",
    ),
    "stats_patched": submission(
        "",
        'extern "C" cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t)'
        " { *ms = 1e-6f; return cudaSuccess; }\n",
    ),
    # KernelBench 82: another stream; its others are in exploits.py
    "stream_never_waited_for": submission(
        "cudaStream_t other; cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);\n"
        "    if (n % 2) square<<<(n + 255) / 256, 256, 0, other>>>(x, y, n);"
    ),
}
PUBLISHED = PYGPUBENCH | OTHERS
