// Products of a warpgroup, four warps of 32 lanes: 64 rows of a by N rows of b, of 16-bit floats,
// summed in float. b comes from shared memory, and a from there or from registers. GPUs have them
// from compute capability 9.0 on, and code has to be compiled for 9.0a.
//
// The sums of a warpgroup, [64, N], are in its registers: thread t has of row t / 32 * 16 +
// t % 32 / 4, and of the row 8 below, the columns 8 * j + t % 4 * 2 and the one after:
//
//   sums[4 * j], sums[4 * j + 1]          of the upper row
//   sums[4 * j + 2], sums[4 * j + 3]      of the lower one
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

// May a kernel that was declared with WGMMA_KERNEL(threads) be launched on the current device?
template <class Kernel>
bool has_wgmma(Kernel* kernel, int threads) {
    cudaFuncAttributes compiled = {};
    if (cudaFuncGetAttributes(&compiled, kernel) != cudaSuccess) {
        cudaGetLastError();  // not of the launch to come
        return false;
    }
    return compiled.maxThreadsPerBlock >= threads;
}

#if HAS_WGMMA

// What describes a tile in shared memory: as TMA writes it (swizzle.cuh). Of a tile whose rows
// hold 64 of k, the next 16 of k are at descriptor + 2. Of a transposed tile, whose rows hold 64 of
// m or n, a row for each of k, the next 16 of k are at descriptor + 128; and where m or n is more
// than 64, its next 64 are a box `next` bytes on.
__device__ inline uint64_t wgmma_descriptor(const void* tile, int next = 0) {
    return uint64_t(shared_address(tile) >> 4 & 0x3fff) | uint64_t(next >> 4) << 16 |
           uint64_t(kTileAlign >> 4) << 32 | 1ull << 62;
}

// Before the first product, and when threads have written to the sums since the last one.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Returns when of the committed groups of products all but the last `pending` are done.
template <int pending>
__device__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

#define SUMS_8(i)                                                                              \
    "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), \
        "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define SUMS_16(i) SUMS_8(i), SUMS_8(i + 8)
#define SUMS_24(i) SUMS_16(i), SUMS_8(i + 16)
#define SUMS_32(i) SUMS_16(i), SUMS_16(i + 16)
#define SUMS_48(i) SUMS_32(i), SUMS_16(i + 32)
#define SUMS_56(i) SUMS_48(i), SUMS_8(i + 48)
#define SUMS_64(i) SUMS_32(i), SUMS_32(i + 32)
#define SUMS_96(i) SUMS_64(i), SUMS_32(i + 64)
#define SUMS_128(i) SUMS_64(i), SUMS_64(i + 64)
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
#define NAMES_96                                                                            \
    NAMES_64                                                                                \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84," \
    "%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define NAMES_128                                                                               \
    NAMES_64                                                                                    \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85," \
    "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,"    \
    "%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,"     \
    "%123,%124,%125,%126,%127"

// The instruction for one N and one type; A, B, ADDS, TRANS_A, TRANS_B: the numbers of its operands
// behind the sums.
#define WGMMA(N, TYPE, NAMES, SUMS, A, B, ADDS, TRANS_A, TRANS_B)                            \
    asm volatile(                                                                            \
        "{ .reg .pred adds;\n"                                                               \
        "  setp.ne.b32 adds, %" ADDS                                                         \
        ", 0;\n"                                                                             \
        "  wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" NAMES "}, %" A \
        ", %" B ", adds, 1, 1, %" TRANS_A ", %" TRANS_B "; }"                                \
        : SUMS                                                                               \
        : "l"(a), "l"(b), "r"(int(adds)), "n"(kTransA), "n"(kTransB))

// sums = a b^T, or sums += a b^T, over 16 of k. kTransA, kTransB: whether a tile is transposed. The
// product goes on while the threads do: sums may be read after wgmma_wait.
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&sums)[8], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("16", "f16", NAMES_8, SUMS_8(0), "8", "9", "10", "11", "12");
    } else {
        WGMMA("16", "bf16", NAMES_8, SUMS_8(0), "8", "9", "10", "11", "12");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&sums)[16], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("32", "f16", NAMES_16, SUMS_16(0), "16", "17", "18", "19", "20");
    } else {
        WGMMA("32", "bf16", NAMES_16, SUMS_16(0), "16", "17", "18", "19", "20");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&sums)[24], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("48", "f16", NAMES_24, SUMS_24(0), "24", "25", "26", "27", "28");
    } else {
        WGMMA("48", "bf16", NAMES_24, SUMS_24(0), "24", "25", "26", "27", "28");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&sums)[32], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("64", "f16", NAMES_32, SUMS_32(0), "32", "33", "34", "35", "36");
    } else {
        WGMMA("64", "bf16", NAMES_32, SUMS_32(0), "32", "33", "34", "35", "36");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&sums)[48], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("96", "f16", NAMES_48, SUMS_48(0), "48", "49", "50", "51", "52");
    } else {
        WGMMA("96", "bf16", NAMES_48, SUMS_48(0), "48", "49", "50", "51", "52");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&sums)[56], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("112", "f16", NAMES_56, SUMS_56(0), "56", "57", "58", "59", "60");
    } else {
        WGMMA("112", "bf16", NAMES_56, SUMS_56(0), "56", "57", "58", "59", "60");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&sums)[64], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("128", "f16", NAMES_64, SUMS_64(0), "64", "65", "66", "67", "68");
    } else {
        WGMMA("128", "bf16", NAMES_64, SUMS_64(0), "64", "65", "66", "67", "68");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&sums)[96], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("192", "f16", NAMES_96, SUMS_96(0), "96", "97", "98", "99", "100");
    } else {
        WGMMA("192", "bf16", NAMES_96, SUMS_96(0), "96", "97", "98", "99", "100");
    }
}
template <class T, bool kTransA = false, bool kTransB = false>
__device__ void wgmma(float (&sums)[128], uint64_t a, uint64_t b, bool adds) {
    if constexpr (IsHalf<T>::value) {
        WGMMA("256", "f16", NAMES_128, SUMS_128(0), "128", "129", "130", "131", "132");
    } else {
        WGMMA("256", "bf16", NAMES_128, SUMS_128(0), "128", "129", "130", "131", "132");
    }
}

#undef WGMMA

// Number i of a thread's sums: its row among the 64, and its column.
__device__ inline int row_of_sum(int i) {
    return threadIdx.x % kWarpgroup / kWarp * 16 + threadIdx.x % kWarp / 4 + i / 2 % 2 * 8;
}
__device__ inline int column_of_sum(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

// 16 columns more of a warpgroup's sums, as pairs of 16-bit floats, to a tile: those that begin
// with `column`. words: sums[8 * n] and the one after, sums[8 * n + 2] and so on.
__device__ inline void store_sums(char* tile, int column, const uint32_t (&words)[4]) {
    const int lane = threadIdx.x % kWarp;
    const int row = threadIdx.x % kWarpgroup / kWarp * 16 + lane % 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(tile + swizzled(row, 2 * column + lane / 16 * 16))),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}

// Gives registers to a warpgroup that multiplies, and takes them from one that does not.
template <int registers>
__device__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// A barrier for one warpgroup of a block: number 1 for the first one, and so on.
__device__ inline void warpgroup_barrier(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
}

#endif
