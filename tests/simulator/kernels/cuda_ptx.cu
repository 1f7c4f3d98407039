// cuda::ptx from NVIDIA's own headers, and cuda::barrier's helpers for copies in bulk and of
// tensors.
#include <cuda.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <cuda/barrier>
#include <cuda/ptx>

namespace ptx = cuda::ptx;
namespace cde = cuda::device::experimental;
using barrier = cuda::barrier<cuda::thread_scope_block>;

// ---- One instruction each

__global__ void values(uint32_t* y, uint32_t* x) {
    const uint32_t lane = ptx::get_sreg_laneid(), a = x[0], b = x[1];
    bool found;
    const uint32_t next = ptx::shfl_sync_idx(lane * 3, found, (lane + 1) % 32, 31u, ~0u);
    const uint32_t up = ptx::shfl_sync_up(lane, 1u, 0u, ~0u);
    if (lane != 5) return;
    int n = 0;
    y[n++] = next + found;
    y[n++] = up;
    y[n++] = ptx::bfind(a);
    y[n++] = ptx::bfind_shiftamt(a);
    y[n++] = ptx::bmsk_clamp(4u, 8u);
    y[n++] = ptx::bmsk_wrap(36u, 8u);
    y[n++] = ptx::prmt(a, b, 0x7531u);
    y[n++] = ptx::prmt_f4e(a, b, 1u);
    y[n++] = ptx::prmt_b4e(a, b, 1u);
    y[n++] = ptx::prmt_rc8(a, b, 1u);
    y[n++] = ptx::prmt_ecl(a, b, 1u);
    y[n++] = ptx::prmt_ecr(a, b, 1u);
    y[n++] = ptx::prmt_rc16(a, b, 1u);
    y[n++] = ptx::shl(a, 4u);
    y[n++] = ptx::shr(int32_t(b), 4u);
    y[n++] = ptx::shr(b, 40u);
    y[n++] = ptx::ld(ptx::space_global, x + 1);
    y[n++] = ptx::ld_L1_no_allocate(ptx::space_global, x + 1);
    y[n++] = ptx::ld_nc(ptx::space_global, x);
    ptx::st(ptx::space_global, y + n++, a + 1);
    ptx::st_L1_no_allocate(ptx::space_global, y + n++, a + 2);
    y[n++] = ptx::get_sreg_tid_x();
    y[n++] = ptx::get_sreg_ntid_x();
    y[n++] = ptx::get_sreg_ctaid_x();
    y[n++] = ptx::get_sreg_nctaid_x();
    y[n++] = ptx::get_sreg_warpid() < ptx::get_sreg_nwarpid();  // a place in the processor
    y[n++] = ptx::get_sreg_lanemask_lt();
    y[n++] = ptx::get_sreg_cluster_ctarank();
    ptx::fence(ptx::sem_sc, ptx::scope_gpu);
    ptx::fence(ptx::sem_acq_rel, ptx::scope_cluster);
    ptx::fence_proxy_alias();
    ptx::fence_proxy_async();
    ptx::fence_proxy_async(ptx::space_global);
}
extern "C" void run_values(int* y, int* x) {
    values<<<1, 32>>>(reinterpret_cast<uint32_t*>(y), reinterpret_cast<uint32_t*>(x));
}

// ---- mbarriers and copies in bulk: y = 2 x, then y += 1, min with 500, and halves

__global__ void bulk(int* y, const int* x, __half* h) {
    alignas(16) __shared__ int tile[128];
    alignas(16) __shared__ __half halves[8];
    __shared__ uint64_t full, plain;
    const unsigned t = threadIdx.x;
    if (t == 0) {
        ptx::mbarrier_init(&full, 128);
        ptx::mbarrier_init(&plain, 128);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    uint64_t token;
    if (t == 0) {
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, x, sizeof tile / 2, &full);
        ptx::mbarrier_expect_tx(
            ptx::sem_relaxed, ptx::scope_cta, ptx::space_shared, &full, sizeof tile / 2);
        ptx::cp_async_bulk(
            ptx::space_shared, ptx::space_global, tile + 64, x + 64, sizeof tile / 2, &full);
        token = ptx::mbarrier_arrive_expect_tx(
            ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, sizeof tile / 2);
    } else {
        token = ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full);
    }
    while (!ptx::mbarrier_try_wait(ptx::sem_acquire, ptx::scope_cta, &full, token)) {
    }
    while (!ptx::mbarrier_test_wait_parity(&full, 0)) {
    }
    const int mine = tile[t];
    ptx::mbarrier_arrive_no_complete(&plain, 0 + 1);
    if (t == 127) y[256] = 1;
    __syncthreads();
    tile[t] = 2 * mine;
    if (t < 8) halves[t] = __half(0.25f * t);
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (t == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y, tile, sizeof tile);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
        ptx::cp_reduce_async_bulk(
            ptx::space_global, ptx::space_shared, ptx::op_add, y, tile, uint32_t(sizeof tile));
        ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_min, y + 128, tile,
                                  uint32_t(sizeof tile));
        ptx::cp_reduce_async_bulk(
            ptx::space_global, ptx::space_shared, ptx::op_add, h, halves, uint32_t(sizeof halves));
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}
extern "C" void run_bulk(int* y, int* x, __half* h) { bulk<<<1, 128>>>(y, x, h); }

// ---- A ring of blocks: each stores to the next one's shared memory

__global__ void __cluster_dims__(4, 1, 1) ring(int* y) {
    __shared__ alignas(16) int got[4];
    __shared__ int sum;
    __shared__ uint64_t full;
    const uint32_t rank = ptx::get_sreg_cluster_ctarank(), t = threadIdx.x;
    if (t == 0) {
        ptx::mbarrier_init(&full, 1);
        sum = 100;
        ptx::mbarrier_arrive_expect_tx(
            ptx::sem_release, ptx::scope_cluster, ptx::space_shared, &full, sizeof got + 4 * 3);
    }
    ptx::barrier_cluster_arrive(ptx::sem_release);
    ptx::barrier_cluster_wait(ptx::sem_acquire);
    uint32_t next = (rank + 1) % 4;
    if (t == 0) {
        const auto at = [&](auto* p) {
            using T = decltype(p);
            uint64_t there;
            asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(next));
            return reinterpret_cast<T>(there);
        };
        const int values[4] = {int(rank), 10, 20, 30};
        ptx::st_async(at(got), values, at(&full));
        for (int i = 0; i < 3; i++) ptx::red_async(ptx::op_add, at(&sum), int(rank), at(&full));
        y[rank * 8 + 6] = int(ptx::getctarank(ptx::space_cluster, at(got)));
    }
    while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &full, 0)) {
    }
    if (t < 4) y[rank * 8 + t] = got[t];
    if (t == 4) y[rank * 8 + t] = sum;
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
}
extern "C" void run_ring(int* y) { ring<<<4, 32>>>(y); }

// ---- cuda::barrier: a box of each rank goes in and out again, by libcu++'s helpers and cuda::ptx

#define AT1 4  // 16 bytes: an H100 takes no box that begins between them
#define AT2 AT1, 2
#define AT3 AT2, 1
#define AT4 AT3, 0
#define AT5 AT4, 1
#define RANKS(Do) Do(1) Do(2) Do(3) Do(4) Do(5)

constexpr int extents[5] = {8, 4, 3, 2, 2}, boxes[5] = {4, 2, 2, 2, 1};

__global__ void box(const __grid_constant__ CUtensorMap from,
                    const __grid_constant__ CUtensorMap to, int rank, int size, bool by_ptx) {
    alignas(128) __shared__ int tile[32];
    __shared__ barrier full;
    if (threadIdx.x == 0) {
        init(&full, blockDim.x);
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
#define LOAD(R)                                                                           \
    if (rank == R && !by_ptx)                                                             \
        cde::cp_async_bulk_tensor_##R##d_global_to_shared(tile, &from, AT##R, full);      \
    if (rank == R && by_ptx) {                                                            \
        const int32_t at[R] = {AT##R};                                                    \
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &from, at, \
                                  cuda::device::barrier_native_handle(full));             \
    }
        RANKS(LOAD)
        token = cuda::device::barrier_arrive_tx(full, 1, size * sizeof(int));
    } else {
        token = full.arrive();
    }
    full.wait(cuda::std::move(token));
    if (int(threadIdx.x) < size) tile[threadIdx.x] += 1000;
    cde::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
#define STORE(R)                                                                                   \
    if (rank == R && !by_ptx) cde::cp_async_bulk_tensor_##R##d_shared_to_global(&to, AT##R, tile); \
    if (rank == R && by_ptx) {                                                                     \
        const int32_t at[R] = {AT##R};                                                             \
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &to, at, tile);            \
        ptx::cp_async_bulk_commit_group();                                                         \
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());                                            \
        ptx::cp_reduce_async_bulk_tensor(                                                          \
            ptx::space_global, ptx::space_shared, ptx::op_add, &to, at, tile);                     \
    }
        RANKS(STORE)
        cde::cp_async_bulk_commit_group();
        cde::cp_async_bulk_wait_group_read<0>();
    }
}

static CUtensorMap encoded(void* x, int rank) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
    CUtensorMap map;
    cuuint64_t extent[5], stride[5], bytes = 4;
    cuuint32_t of_box[5], steps[5];
    for (int d = 0; d < rank; d++) {
        extent[d] = extents[d];
        stride[d] = bytes *= extents[d];
        of_box[d] = boxes[d];
        steps[d] = 1;
    }
    reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
        &map, CU_TENSOR_MAP_DATA_TYPE_INT32, rank, x, extent, stride, of_box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}
extern "C" void run_box(int* y, int* x, int rank, int by_ptx) {
    int size = 1;
    for (int d = 0; d < rank; d++) size *= boxes[d];
    box<<<1, 32>>>(encoded(x, rank), encoded(y, rank), rank, size, by_ptx);
}

// ---- cuda::barrier: bytes in a row, in two phases

__global__ void rows(int* y, const int* x) {
    alignas(16) __shared__ int tile[2][64];
    __shared__ barrier full;
    const unsigned t = threadIdx.x;
    if (t == 0) {
        init(&full, blockDim.x);
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    for (int phase = 0; phase < 2; phase++) {
        if (t == 0) {
            const auto size = cuda::aligned_size_t<16>(sizeof tile[0]);
            if (phase == 0) {
                cuda::device::memcpy_async_tx(tile[0], x, size, full);
                cuda::device::barrier_expect_tx(full, size);
                full.arrive_and_wait();
            } else {
                cde::cp_async_bulk_global_to_shared(tile[1], x + 64, size, full);
                full.wait(cuda::device::barrier_arrive_tx(full, 1, size));
            }
        } else {
            full.arrive_and_wait();
        }
        y[phase * 64 + t] = tile[phase][63 - t];
    }
    __syncthreads();
    tile[0][t] = t;
    cde::fence_proxy_async_shared_cta();
    __syncthreads();
    if (t == 0) {
        cde::cp_async_bulk_shared_to_global(y + 128, tile[0], sizeof tile[0]);
        cde::cp_async_bulk_commit_group();
        cde::cp_async_bulk_wait_group_read<0>();
    }
}
extern "C" void run_rows(int* y, int* x) { rows<<<1, 64>>>(y, x); }

// ---- On the simulator

// A vector of 16 bytes, at a multiple of 4.
__global__ void misplaced() {
    __shared__ alignas(16) int got[8];
    __shared__ uint64_t full;
    const int values[4] = {};
    ptx::st_async(got + 1, values, &full);  // MISPLACED
}
extern "C" cudaError_t run_misplaced() {
    misplaced<<<1, 1>>>();
    return cudaDeviceSynchronize();
}

// Nobody announces the bytes that the phase has to wait for.
__global__ void too_few(int* x) {
    alignas(16) __shared__ int tile[64];
    __shared__ barrier full;
    if (threadIdx.x == 0) init(&full, 32);
    __syncthreads();
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_global_to_shared(tile, x, 128, full);
        cuda::device::barrier_expect_tx(full, 256);
    }
    full.arrive_and_wait();  // WAITS
}
extern "C" cudaError_t run_too_few(int* x) {
    too_few<<<1, 32>>>(x);
    return cudaDeviceSynchronize();
}

__global__ void unknown() { ptx::exit(); }
extern "C" cudaError_t run_unknown() {
    unknown<<<1, 1>>>();
    return cudaDeviceSynchronize();
}

// The blocks of a cluster write to the next one's shared memory as soon as they run.
__global__ void __cluster_dims__(4, 1, 1) early(int* y) {
    __shared__ uint32_t word;
    uint32_t there, next = (ptx::get_sreg_cluster_ctarank() + 1) % 4;
    const uint32_t here = uint32_t(__cvta_generic_to_shared(&word));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(next));
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(blockIdx.x) : "memory");
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
    y[blockIdx.x] = int(word);
}
extern "C" cudaError_t run_early(int* y) {
    early<<<64, 1>>>(y);
    return cudaDeviceSynchronize();
}
