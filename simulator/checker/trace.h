// What the threads of a block have accessed since their warps last met, each in its own order.
//
// A hook only adds an access here; what it means is worked out for a whole warp at once. Lanes run
// one after another, and the hardware in step: so eight accesses of a lane lie together, and beside
// them the same eight of the warp's other lanes.
#pragma once
#include <sys/mman.h>
#include <algorithm>
#include <new>
#include "../include/simulator/block.h"

namespace simulator {
namespace {

// Store: an atomic that reads nothing. Swap: an atomicExch. Exchange: one that writes if it finds
// what it expects. Load: an atomic that writes nothing. Count: an atomicAdd of the constant 1.
// Loop: an atomic that is a loop of atomicCAS on a GPU, at least in shared memory.
enum class Kind : uint8_t {
    Read,
    Write,
    Atomic,
    Store,
    Exchange,
    Load,
    VolatileRead,
    VolatileWrite,
    Count,
    Loop,
    Swap
};
constexpr const char* access_names[] = {"read", "write", "atomic", "atomic", "atomic", "read",
                                        "read", "write", "atomic", "atomic", "atomic"};
constexpr bool is_atomic(Kind kind) {
    return kind == Kind::Atomic || kind == Kind::Store || kind == Kind::Exchange ||
           kind == Kind::Count || kind == Kind::Loop || kind == Kind::Swap;
}
constexpr bool is_volatile(Kind kind) {
    return kind == Kind::VolatileRead || kind == Kind::VolatileWrite;
}
constexpr bool only_reads(Kind kind) {
    return kind == Kind::Read || kind == Kind::Load || kind == Kind::VolatileRead;
}
// Whether others whose accesses are no plain ones either may go on at the same time.
constexpr bool is_strong(Kind kind) { return kind != Kind::Read && kind != Kind::Write; }

// Where, of which size, from which site.
struct Access {
    uint64_t bits;

    Access(uintptr_t address, unsigned size, unsigned site)
        : bits(address | uint64_t(__builtin_ctz(size)) << 48 | uint64_t(site) << 51) {}
    static uintptr_t address_of(uint64_t bits) { return bits & ((uint64_t(1) << 48) - 1); }
    uintptr_t address() const { return address_of(bits); }
    unsigned size() const { return 1u << (bits >> 48 & 7); }
    unsigned site() const { return bits >> 51; }
    uint64_t what() const { return bits >> 48; }  // site and size
};

template <class Visit>
SIMULATOR_INLINE void for_each_of(uint32_t lanes, Visit visit) {
    for (; lanes; lanes &= lanes - 1) visit(unsigned(__builtin_ctz(lanes)));
}

// The addresses of lanes of a warp; at one place, at one time. Or at several times, where each of
// the lanes goes on at the end of its last access.
struct Request {
    uint32_t lanes = 0;
    unsigned turn = ~0u;  // of these accesses in their threads' traces, if they are there
    unsigned times = 1, stride = 0;  // each lane's accesses, and the turns from one to the next
    unsigned site = 0;
    unsigned size = 0;      // bytes of each lane
    bool in_a_row = true;   // each address is the last one's end
    bool apart = true;      // no two overlap, and they ascend
    bool same = false;      // all lanes of the warp want the same bytes
    uintptr_t first, last;  // bytes that they cover, if they are apart or the same
    uintptr_t differ = 0;   // the bits in which addresses differ from the first
    uintptr_t at[warp_size];

    // In ascending order of lanes.
    SIMULATOR_INLINE void add(unsigned lane, uintptr_t address) {
        if (!lanes) first = last = address;
        in_a_row &= address == last;
        apart &= address >= last;
        differ |= address ^ first;
        last = address + size;
        lanes |= 1u << lane;
        at[lane] = address;
    }
    unsigned count() const { return __builtin_popcount(lanes); }

    // Makes it one with a later one at the same place, if the lanes go on there.
    bool join(const Request& next) {
        const unsigned step = times == 1 ? next.turn - turn : stride;
        if (lanes != next.lanes || size != next.size || next.turn != turn + times * step)
            return false;
        uint64_t other = 0;
        const auto compare = [&](unsigned lane) {
            other |= next.at[lane] ^ (at[lane] + times * size);
        };
        if (lanes == ~0u)  // in vectors
            for (unsigned lane = 0; lane < warp_size; lane++) compare(lane);
        else
            for_each_of(lanes, compare);
        if (other) return false;
        stride = step;
        times++;
        return true;
    }
};

class Trace {
  public:
    static constexpr unsigned most = 1 << 15;  // accesses of a thread, until its warp meets

    Trace() {
        void* reserved = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved == MAP_FAILED) throw std::bad_alloc();
        memory = static_cast<Access*>(reserved);
        values = static_cast<uint8_t*>(reserved) + accesses_bytes;
        clear();
        advise_on_rest(MADV_HUGEPAGE);
    }
    ~Trace() { munmap(memory, bytes); }
    Trace(const Trace&) = delete;

    // Where it is now; null if there is no room: the thread's warp has not met for too long.
    SIMULATOR_INLINE Access* add(unsigned thread, Access access) {
        Access *at = next[thread], *const added = at;
        if (!at) return nullptr;
        *at++ = access;
        if (reinterpret_cast<uintptr_t>(at) % (together * sizeof(Access)) == 0) {
            at += (warp_size - 1) * together;
            const Access* const after = at + warp_size * together;
            __builtin_prefetch(after, 1);
            __builtin_prefetch(&values[after - memory], 1);
            if (at >= first(thread) + size_t(most) * warp_size) at = nullptr;
        }
        next[thread] = at;
        return added;
    }

    // Of a plain write, a few bits of what was written.
    uint8_t& value_of(const Access* access) { return values[access - memory]; }
    unsigned value(unsigned thread, unsigned turn) const {
        return values[&get(thread, turn) - memory];
    }

    unsigned count(unsigned thread) const {
        if (!next[thread]) return most;
        const size_t offset = next[thread] - first(thread);
        return offset / (together * warp_size) * together + offset % (together * warp_size);
    }
    const Access& get(unsigned thread, unsigned turn) const {
        return first(thread)[turn / together * together * warp_size + turn % together];
    }
    // The turn-th access of all lanes of a warp, or of those that have so many. False if they are
    // not at one site.
    bool gather(unsigned warp, unsigned turn, Request& request) const {
        const unsigned thread = warp * warp_size;
        const Access begin = get(thread, turn);
        request.turn = turn;
        request.site = begin.site();
        request.size = begin.size();
        request.lanes = ~0u;
        request.first = begin.address();
        request.last = request.first + warp_size * request.size;
        uint64_t other = 0, astray = 0;
        for (unsigned lane = 0; lane < warp_size; lane++) {
            const uint64_t bits = get(thread + lane, turn).bits;
            other |= bits ^ begin.bits;
            astray |= bits ^ (begin.bits + lane * request.size);
            request.at[lane] = Access::address_of(bits);
        }
        if (astray) {
            const uintptr_t *at = request.at, size = request.size;
            request.in_a_row = false;
            for (unsigned lane = 1; lane < warp_size; lane++)
                request.apart &= at[lane] >= at[lane - 1] + size;
            request.last = at[warp_size - 1] + size;
        }
        request.same = !other;
        request.differ = Access::address_of(other);
        return other >> 48 == 0;
    }
    bool gather(unsigned warp, unsigned turn, Request& request,
                const unsigned (&count)[warp_size]) const {
        uint64_t what = 0;
        request.turn = turn;
        for (unsigned lane = 0; lane < warp_size; lane++) {
            if (count[lane] <= turn) continue;
            const Access access = get(warp * warp_size + lane, turn);
            if (!request.lanes) {
                what = access.what();
                request.site = access.site();
                request.size = access.size();
            }
            if (access.what() != what) return false;
            request.add(lane, access.address());
        }
        return true;
    }

    void clear() {
        for (unsigned thread = 0; thread < max_threads; thread++) clear(thread);
    }
    void clear(unsigned thread) { next[thread] = first(thread); }

    // Gives back what only long loops need.
    void shrink() { advise_on_rest(MADV_DONTNEED); }

  private:
    void advise_on_rest(int advice) {
        constexpr size_t kept = 64 << 10;
        for (unsigned thread = 0; thread < max_threads; thread += warp_size)
            madvise(reinterpret_cast<char*>(first(thread)) + kept, of_warp * sizeof(Access) - kept,
                    advice);
    }

    static constexpr unsigned together = 8;
    // Were all warps' to begin at the same offset in a page, they would fight for the same lines of
    // the cache.
    static constexpr size_t of_warp = size_t(most + 2 * together) * warp_size;  // whole pages
    static constexpr size_t most_accesses = max_threads / warp_size * of_warp;
    static constexpr size_t accesses_bytes = most_accesses * sizeof(Access);
    static constexpr size_t bytes = accesses_bytes + most_accesses * sizeof(uint8_t);

    Access* first(unsigned thread) const {
        return memory + thread / warp_size * of_warp + thread % warp_size * together;
    }

    Access* memory;
    uint8_t* values;
    Access* next[max_threads];
};

}  // namespace
}  // namespace simulator
