// The mbarrier of PTX: a barrier in shared memory at which threads wait for other threads, and for
// the bytes of copies. It completes a phase when all arrivals and bytes that were expected have
// come, and is then there for the next phase. GPUs count bytes there from Hopper on. For blocks of
// a cluster that takes half the time of a barrier for all their threads, which first sees to it
// that everything each of them has ever written is known to all.
#pragma once

#include "swizzle.cuh"
#include "vec.cuh"

// The address of the same place in block `rank` of the cluster.
__device__ inline uint32_t shared_address_in(int rank, const void* p) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(p)), "r"(rank));
    return there;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

class Mbarrier {
  public:
    // One thread initialises it, before a barrier of the block or of the cluster.
    __device__ void init(int arrivals = 1) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }

    __device__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
    }

    // The same without a branch.
    __device__ void arrive_if(bool arrives) {
        asm volatile(
            "{ .reg .pred arrives;\n"
            "  setp.ne.b32 arrives, %1, 0;\n"
            "  @arrives mbarrier.arrive.shared::cta.b64 _, [%0]; }" ::"r"(address()),
            "r"(int(arrives))
            : "memory");
    }

    // At the same barrier of another block. It tells that this thread has read, not what it has
    // written: with .release.cluster it would take a product a quarter longer on an H200.
    __device__ void arrive_in(int rank) {
        asm volatile(
            "mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(shared_address_in(rank, this))
            : "memory");
    }

    // The same, and whoever waits for the cluster there finds what this thread has written.
    __device__ void arrive_release_in(int rank) {
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                         shared_address_in(rank, this))
                     : "memory");
    }

    // One thread says how much will come in this phase.
    __device__ void arrive_expect_tx(int bytes) {
        asm volatile(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes)
            : "memory");
    }

    // Writes a value to where block `rank` has `to`, and tells that block's mbarrier: 16 bytes at a
    // time if it has so many, for each time keeps that block's counter busy.
    template <class P>
    __device__ void st_async(P* to, const P& value, int rank) {
        constexpr int count = sizeof(P) / 4, at_once = count % 4 == 0 ? 4 : count % 2 == 0 ? 2 : 1;
        uint32_t words[count];
        memcpy(words, &value, sizeof(P));
        const uint32_t remote_to = shared_address_in(rank, to);
        const uint32_t remote = shared_address_in(rank, this);
        for (int i = 0; i < count; i += at_once) {
            const uint32_t place = remote_to + 4 * i;
            if constexpr (at_once == 4) {
                asm volatile(
                    "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"
                    " [%0], {%1, %2, %3, %4}, [%5];" ::"r"(place),
                    "r"(words[i]), "r"(words[i + 1]), "r"(words[i + 2]), "r"(words[i + 3]),
                    "r"(remote)
                    : "memory");
            } else if constexpr (at_once == 2) {
                asm volatile(
                    "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32"
                    " [%0], {%1, %2}, [%3];" ::"r"(place),
                    "r"(words[i]), "r"(words[i + 1]), "r"(remote)
                    : "memory");
            } else {
                asm volatile(
                    "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32"
                    " [%0], %1, [%2];" ::"r"(place),
                    "r"(words[i]), "r"(remote)
                    : "memory");
            }
        }
    }

    // Return when the phase is complete. parity: 0, 1, 0, 1 ... from phase to phase.
    // What came from this block's threads and copies can then be read;
    __device__ void wait(int parity) {
        asm volatile(
            "{ .reg .pred complete;\n"
            "again:\n"
            "  mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\n"
            "  @!complete bra again; }" ::"r"(address()),
            "r"(parity)
            : "memory");
    }

    // and here what came from those of all blocks of the cluster.
    __device__ void wait_for_cluster(int parity) {
        asm volatile(
            "{ .reg .pred complete;\n"
            "again:\n"
            "  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [%0], %1;\n"
            "  @!complete bra again; }" ::"r"(address()),
            "r"(parity)
            : "memory");
    }

    __device__ uint32_t address() const { return shared_address(this); }

  private:
    uint64_t state_;
};

// A barrier for all threads of the cluster, in two halves. What threads have written before the
// first half is known to the others only if that is cluster_arrive_release.
__device__ inline void cluster_arrive() { __cluster_barrier_arrive_relaxed(); }
__device__ inline void cluster_arrive_release() { __cluster_barrier_arrive(); }
__device__ inline void cluster_wait() { __cluster_barrier_wait(); }

// What stands at p in block `rank` of the cluster: four floats, from a multiple of 16 bytes on.
__device__ inline Vec<float, 4> load_four_from(int rank, const float* p) {
    Vec<float, 4> values;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3])
                 : "r"(shared_address_in(rank, p))
                 : "memory");
    return values;
}

#else  // nothing that needs it is launched where has_clusters says no

struct Mbarrier {
    __device__ void init(int = 1) {}
    __device__ void arrive() {}
    __device__ void arrive_if(bool) {}
    __device__ void arrive_in(int) {}
    __device__ void arrive_release_in(int) {}
    __device__ void arrive_expect_tx(int) {}
    template <class P>
    __device__ void st_async(P*, const P&, int) {}
    __device__ void wait(int) {}
    __device__ void wait_for_cluster(int) {}
};
__device__ inline void cluster_arrive() {}
__device__ inline void cluster_arrive_release() {}
__device__ inline void cluster_wait() {}
__device__ inline Vec<float, 4> load_four_from(int, const float* p) { return load<4>(p); }

#endif
