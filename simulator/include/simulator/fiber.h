// Leaving one stack for another.
//
// A fiber is a stack with a function that has not finished. While it is suspended, three registers
// are all there is to know about it: the others are named as clobbered, so the compiler itself
// saves those that are alive, and only those. The switch is inlined and jumps instead of returning:
// a `ret` on another stack than its `call` is predicted wrongly every time, which costs several
// times as much as the whole switch.
#pragma once
#include <stdint.h>

namespace simulator {

// A suspended fiber.
struct Context {
    void *stack, *frame, *code;  // the registers of the stack, the frame, and the next instruction
};

#if defined(__x86_64__)

#ifdef __AVX512F__
#define SIMULATOR_AVX512                                                                          \
    , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",   \
        "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k0", "k1", "k2", "k3", "k4", "k5", \
        "k6", "k7"
#else
#define SIMULATOR_AVX512
#endif

// Suspends the running fiber as `from` and resumes `to`.
[[gnu::always_inline]] inline void switch_fiber(Context* from, Context* to) {
    asm volatile(
        "leaq 1f(%%rip), %%rax\n\t"
        "movq %%rsp, 0(%0)\n\t"
        "movq %%rbp, 8(%0)\n\t"
        "movq %%rax, 16(%0)\n\t"
        "movq 0(%1), %%rsp\n\t"
        "movq 8(%1), %%rbp\n\t"
        "jmpq *16(%1)\n"
        "1:"
        : "+D"(from), "+S"(to)
        :
        : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0",
          "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
          "xmm12", "xmm13", "xmm14", "xmm15" SIMULATOR_AVX512, "memory", "cc");
}
#undef SIMULATOR_AVX512

constexpr uintptr_t return_address = 8;  // what a call leaves on the stack

#elif defined(__aarch64__)

#ifdef __APPLE__
#define SIMULATOR_X18  // belongs to the system
#else
#define SIMULATOR_X18 "x18",
#endif

[[gnu::always_inline]] inline void switch_fiber(Context* from, Context* to) {
    register Context* x0 asm("x0") = from;
    register Context* x1 asm("x1") = to;
    asm volatile(
        "adr x16, 1f\n\t"
        "mov x17, sp\n\t"
        "stp x17, x29, [x0]\n\t"
        "str x16, [x0, #16]\n\t"
        "ldp x17, x29, [x1]\n\t"
        "ldr x16, [x1, #16]\n\t"
        "mov sp, x17\n\t"
        "br x16\n"
        "1:\n\t"
        "hint #36"  // bti j: a landing place where branch targets are checked
        : "+r"(x0), "+r"(x1)
        :
        : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
          "x16", "x17", SIMULATOR_X18 "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27",
          "x28", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11",
          "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",
          "v25", "v26", "v27", "v28", "v29", "v30", "v31", "memory", "cc");
}
#undef SIMULATOR_X18

constexpr uintptr_t return_address = 0;  // a call leaves it in a register

#else
#error "The simulator knows how to switch stacks on x86-64 and aarch64 only."
#endif

// A fiber that has not begun: it will call `main`, which must not return, on the stack that ends at
// `top`.
inline Context fresh_fiber(char* top, void (*main)()) {
    const uintptr_t aligned = reinterpret_cast<uintptr_t>(top) & ~uintptr_t(15);
    return {
        reinterpret_cast<void*>(aligned - return_address), nullptr, reinterpret_cast<void*>(main)};
}

}  // namespace simulator
