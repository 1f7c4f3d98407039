// Warpgroup matrix products (wgmma in PTX): 64 rows of a by N rows of b, of 16-bit floats,
// accumulated in float. b comes from shared memory, a from there or from registers. They need
// compute capability 9.0, and code that is compiled for 9.0a.
//
// The accumulators of a warpgroup, [64, N], are in its registers: thread t has, of row t / 32 * 16
// + t % 32 / 4 and of the row 8 below, the columns 8 * j + t % 4 * 2 and the one after:
//
//   accum[4 * j], accum[4 * j + 1]          of the upper row
//   accum[4 * j + 2], accum[4 * j + 3]      of the lower one
#pragma once

#include "cluster.cuh"
#include "mma.cuh"
#include "tma.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WGMMA 1
#define WGMMA_KERNEL_IN_BLOCKS(threads, blocks) __launch_bounds__(threads, blocks)
#else  // a kernel of these is empty here, and launched nowhere: see has_wgmma
#define HAS_WGMMA 0
#define WGMMA_KERNEL_IN_BLOCKS(threads, blocks) __launch_bounds__(32, 1)
#endif
#define WGMMA_KERNEL(threads) WGMMA_KERNEL_IN_BLOCKS(threads, 1)  // blocks of a multiprocessor

constexpr int kWarpgroup = 128;

// The warpgroup of this thread. The shuffle tells the compiler that the value is uniform in a warp,
// so that loop counters and addresses that depend on it, such as descriptors, stay in uniform
// registers. In per-thread registers they would be moved from there before every wgmma.
__device__ inline int warpgroup_number() {
    return __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0);
}

// Whether a kernel declared with WGMMA_KERNEL(threads) may be launched on the current device.
template <class Kernel>
bool has_wgmma(Kernel* kernel, int threads) {
    return remembered(kernel, threads, [&]() -> int {
        cudaFuncAttributes compiled = {};
        if (cudaFuncGetAttributes(&compiled, kernel) != cudaSuccess) {
            cudaGetLastError();  // not of the launch to come
            return false;
        }
        return compiled.maxThreadsPerBlock >= threads;
    });
}

#if HAS_WGMMA

// The matrix descriptor of a tile in shared memory, in the layout in which TMA writes it
// (swizzle.cuh). If rows of the tile hold 64 of k, the next 16 of k are at descriptor + 2. If the
// tile is transposed, with a row of 64 of m or n for each k, the next 16 of k are at descriptor +
// 128; the next 64 of m or n are in a box `next` bytes on.
__device__ inline uint64_t wgmma_descriptor(const void* tile, int next = 0) {
    return uint64_t(shared_address(tile) >> 4 & 0x3fff) | uint64_t(next >> 4) << 16 |
           uint64_t(kTileAlign >> 4) << 32 | 1ull << 62;
}

// Required before the first product, and after threads have written to accumulators.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `pending` of the committed groups are still running.
template <int pending>
__device__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

#define ACCUM_8(i)                                                              \
    "+f"(accum[i]), "+f"(accum[i + 1]), "+f"(accum[i + 2]), "+f"(accum[i + 3]), \
        "+f"(accum[i + 4]), "+f"(accum[i + 5]), "+f"(accum[i + 6]), "+f"(accum[i + 7])
#define ACCUM_16(i) ACCUM_8(i), ACCUM_8(i + 8)
#define ACCUM_24(i) ACCUM_16(i), ACCUM_8(i + 16)
#define ACCUM_32(i) ACCUM_16(i), ACCUM_16(i + 16)
#define ACCUM_48(i) ACCUM_32(i), ACCUM_16(i + 32)
#define ACCUM_56(i) ACCUM_48(i), ACCUM_8(i + 48)
#define ACCUM_64(i) ACCUM_32(i), ACCUM_32(i + 32)
#define ACCUM_72(i) ACCUM_64(i), ACCUM_8(i + 64)
#define ACCUM_80(i) ACCUM_64(i), ACCUM_16(i + 64)
#define ACCUM_96(i) ACCUM_64(i), ACCUM_32(i + 64)
#define ACCUM_112(i) ACCUM_96(i), ACCUM_16(i + 96)
#define ACCUM_128(i) ACCUM_64(i), ACCUM_64(i + 64)
#define NAMES_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define NAMES_16 NAMES_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES_24 NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define NAMES_32                                                                         \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22," \
    "%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_48 NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define NAMES_56 NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define NAMES_64                                                                            \
    NAMES_32                                                                                \
    ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52," \
    "%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_72 NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define NAMES_80 \
    NAMES_64     \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define NAMES_96                                                                            \
    NAMES_64                                                                                \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84," \
    "%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define NAMES_112 \
    NAMES_96      \
    ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define NAMES_128                                                                               \
    NAMES_64                                                                                    \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85," \
    "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,"    \
    "%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,"     \
    "%123,%124,%125,%126,%127"

// The instruction for one N and one type. A, B, ADDS, TRANS_A, TRANS_B: the numbers of the operands
// after the accumulators.
#define WGMMA(N, TYPE, NAMES, ACCUM, A, B, ADDS, TRANS_A, TRANS_B)                           \
    asm volatile(                                                                            \
        "{ .reg .pred adds;\n"                                                               \
        "  setp.ne.b32 adds, %" ADDS                                                         \
        ", 0;\n"                                                                             \
        "  wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" NAMES "}, %" A \
        ", %" B ", adds, 1, 1, %" TRANS_A ", %" TRANS_B "; }"                                \
        : ACCUM                                                                              \
        : "l"(a), "l"(b), "r"(int(adds)), "n"(kTransA), "n"(kTransB))

// accum = a b^T, or if `adds` accum += a b^T, over 16 of k. kTransA, kTransB: whether a tile is
// transposed. The product is asynchronous: accum may be read after wgmma_wait.
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&accum)[8], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("16", "f16", NAMES_8, ACCUM_8(0), "8", "9", "10", "11", "12");
    } else {
        WGMMA("16", "bf16", NAMES_8, ACCUM_8(0), "8", "9", "10", "11", "12");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&accum)[16], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("32", "f16", NAMES_16, ACCUM_16(0), "16", "17", "18", "19", "20");
    } else {
        WGMMA("32", "bf16", NAMES_16, ACCUM_16(0), "16", "17", "18", "19", "20");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&accum)[24], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("48", "f16", NAMES_24, ACCUM_24(0), "24", "25", "26", "27", "28");
    } else {
        WGMMA("48", "bf16", NAMES_24, ACCUM_24(0), "24", "25", "26", "27", "28");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&accum)[32], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("64", "f16", NAMES_32, ACCUM_32(0), "32", "33", "34", "35", "36");
    } else {
        WGMMA("64", "bf16", NAMES_32, ACCUM_32(0), "32", "33", "34", "35", "36");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&accum)[48], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("96", "f16", NAMES_48, ACCUM_48(0), "48", "49", "50", "51", "52");
    } else {
        WGMMA("96", "bf16", NAMES_48, ACCUM_48(0), "48", "49", "50", "51", "52");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&accum)[56], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("112", "f16", NAMES_56, ACCUM_56(0), "56", "57", "58", "59", "60");
    } else {
        WGMMA("112", "bf16", NAMES_56, ACCUM_56(0), "56", "57", "58", "59", "60");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&accum)[64], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("128", "f16", NAMES_64, ACCUM_64(0), "64", "65", "66", "67", "68");
    } else {
        WGMMA("128", "bf16", NAMES_64, ACCUM_64(0), "64", "65", "66", "67", "68");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&accum)[72], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("144", "f16", NAMES_72, ACCUM_72(0), "72", "73", "74", "75", "76");
    } else {
        WGMMA("144", "bf16", NAMES_72, ACCUM_72(0), "72", "73", "74", "75", "76");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&accum)[80], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("160", "f16", NAMES_80, ACCUM_80(0), "80", "81", "82", "83", "84");
    } else {
        WGMMA("160", "bf16", NAMES_80, ACCUM_80(0), "80", "81", "82", "83", "84");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&accum)[96], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("192", "f16", NAMES_96, ACCUM_96(0), "96", "97", "98", "99", "100");
    } else {
        WGMMA("192", "bf16", NAMES_96, ACCUM_96(0), "96", "97", "98", "99", "100");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&accum)[112], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("224", "f16", NAMES_112, ACCUM_112(0), "112", "113", "114", "115", "116");
    } else {
        WGMMA("224", "bf16", NAMES_112, ACCUM_112(0), "112", "113", "114", "115", "116");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&accum)[128], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("256", "f16", NAMES_128, ACCUM_128(0), "128", "129", "130", "131", "132");
    } else {
        WGMMA("256", "bf16", NAMES_128, ACCUM_128(0), "128", "129", "130", "131", "132");
    }
}

#undef WGMMA

// The row, among the 64, and the column of accumulator i of this thread.
__device__ inline int accum_row(int i) {
    return threadIdx.x % kWarpgroup / kWarp * 16 + threadIdx.x % kWarp / 4 + i / 2 % 2 * 8;
}
__device__ inline int accum_column(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

// Stores 16 columns of a warpgroup's accumulators, as pairs of 16-bit floats, to a tile by
// stmatrix, from `column` on. words: accum[8 * n] and the one after, accum[8 * n + 2] and so on.
__device__ inline void store_accum(char* tile, int column, const uint32_t (&words)[4]) {
    const int lane = threadIdx.x % kWarp;
    const int row = threadIdx.x % kWarpgroup / kWarp * 16 + lane % 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(tile + swizzled(row, 2 * column + lane / 16 * 16))),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}

// Gives registers to a warpgroup that multiplies, and takes them from one that does not.
template <int registers>
__device__ void warpgroup_reg_alloc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ void warpgroup_reg_dealloc() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// A barrier for one warpgroup of a block: number 1 for the first one, and so on.
__device__ inline void warpgroup_barrier(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
}

#endif
