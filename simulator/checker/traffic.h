// What a warp asks of memory.
//
// The k-th time that a lane passes a place in the code, counted from the warp's last meeting, it
// takes part in the warp's k-th request there: so do lanes that run in step on the hardware.
#pragma once
#include "regions.h"
#include "trace.h"

namespace simulator {
namespace {

// Different values, of at most a few per lane, that mostly come in ascending order.
template <unsigned most>
struct Set {
    unsigned count = 0;
    int64_t greatest = INT64_MIN;
    int64_t values[most];

    // False if it was there.
    bool add(int64_t value) {
        if (value <= greatest)
            for (unsigned i = count; i-- > 0;)
                if (values[i] == value) return false;
        greatest = std::max(greatest, value);
        values[count++] = value;
        return true;
    }
};

// Each sector that a request touches, once.
template <class Visit>
SIMULATOR_INLINE void for_each_sector(const Request& request, Visit visit) {
    if (request.in_a_row || request.same) {
        for (uintptr_t it = request.first / sector_bytes; it * sector_bytes < request.last; it++)
            visit(it);
    } else if (request.apart) {
        uintptr_t next = 0;  // after those visited
        for_each_of(request.lanes, [&](unsigned lane) {
            const uintptr_t end = (request.at[lane] + request.size - 1) / sector_bytes + 1;
            for (next = std::max(next, request.at[lane] / sector_bytes); next < end; next++)
                visit(next);
        });
    } else {
        Set<2 * warp_size> seen;
        for_each_of(request.lanes, [&](unsigned lane) {
            for (uintptr_t at : {request.at[lane], request.at[lane] + request.size - 1})
                if (seen.add(at / sector_bytes)) visit(at / sector_bytes);
        });
    }
}

// The requests of one place to one region.
struct Traffic {
    Region* region;
    uint64_t requests = 0, lanes = 0;
    uint64_t asked = 0;               // bytes, each lane's
    uint64_t sectors = 0, ideal = 0;  // global: those touched; as few as hold the bytes
    uint64_t passes = 0, smooth = 0;  // shared: through its banks; were there no conflicts
    uint64_t contention = 0;          // atomics: lanes that wait for another of the same address
    uint64_t worst = 0;               // sectors or passes of the request kept below
    uint32_t example_lanes = 0;
    uintptr_t example[warp_size] = {};

    void account(const Request& request, Kind kind) {
        requests++;
        lanes += request.count();
        asked += uint64_t(request.count()) * request.size;
        const uint64_t cost = region->is_shared()                 ? account_shared(request, kind)
                              : is_atomic(kind) && !request.apart ? account_atomics(request)
                                                                  : account_sectors(request);
        if (cost <= worst) return;
        worst = cost;
        example_lanes = request.lanes;
        std::copy_n(request.at, warp_size, example);
    }

  private:
    uint64_t account_sectors(const Request& request) {
        uint64_t touched = 0, different = request.same ? 1 : request.count();
        for_each_sector(request, [&](uintptr_t) { touched++; });
        if (!request.apart && !request.same) {
            Set<warp_size> addresses;
            for_each_of(request.lanes, [&](unsigned lane) { addresses.add(request.at[lane]); });
            different = addresses.count;
        }
        sectors += touched;
        ideal += (different * request.size + sector_bytes - 1) / sector_bytes;
        return touched;
    }

    // Lanes that change one address take turns: each turn moves the sectors of its lanes.
    uint64_t account_atomics(const Request& request) {
        uint64_t total = 0;
        Set<warp_size> addresses;
        for_each_of(request.lanes, [&](unsigned lane) { addresses.add(request.at[lane]); });
        for (uint32_t waiting = request.lanes; waiting;) {
            Set<warp_size> changed;
            Set<2 * warp_size> touched;
            for_each_of(waiting, [&](unsigned lane) {
                if (!changed.add(request.at[lane])) return;
                waiting &= ~(1u << lane);
                touched.add(request.at[lane] / sector_bytes);
                touched.add((request.at[lane] + request.size - 1) / sector_bytes);
            });
            total += touched.count;
        }
        sectors += total;
        ideal += (uint64_t(addresses.count) * request.size + sector_bytes - 1) / sector_bytes;
        contention += request.count() - addresses.count;
        return total;
    }

    uint64_t account_shared(const Request& request, Kind kind) {
        const bool may_wait = is_atomic(kind) && !request.apart;
        if (may_wait) contention += request.count() - addresses_of(request);
        if (kind == Kind::Loop) return account_loop(request);
        return account_banks(request, may_wait && kind != Kind::Count, kind == Kind::Exchange);
    }

    // Shared memory has 32 banks of 4-byte words and serves 128 bytes at a time: all lanes' 4
    // bytes, half of the lanes' 8, or a quarter of the lanes' 16. Each of these takes as many
    // passes as some bank has different words to give, or twice as many for an atomicCAS, whose
    // second pass is no conflict.
    uint64_t account_banks(const Request& request, bool take_turns, bool twice) {
        const unsigned words = std::max(1u, request.size / 4), together = warp_size / words;
        uint64_t total = 0, least = 0;
        for (unsigned first = 0; first < warp_size; first += together) {
            const uint32_t phase = (together == warp_size ? ~0u : (1u << together) - 1) << first;
            if (!(request.lanes & phase)) continue;
            total += take_turns ? turns_of(request, request.lanes & phase, words)
                     : request.in_a_row || request.same
                         ? 1
                         : passes_of(request, request.lanes & phase, words);
            least++;
        }
        const uint64_t more = twice ? total : 0;
        passes += total + more;
        smooth += least + more;
        return total + more;
    }

    // A loop makes a request in each round, which takes two passes for the lanes of all 128 bytes
    // that still wait, as above. Of these, one lane at each bank has its turn. It fails if in this
    // round lanes before those have changed its word.
    uint64_t account_loop(const Request& request) {
        const unsigned words = std::max(1u, request.size / 4), together = warp_size / words;
        uint64_t rounds = 0, total = 0;
        for (uint32_t waiting = request.lanes; waiting; rounds++) {
            Set<warp_size> changed;
            for (unsigned first = 0; first < warp_size; first += together) {
                const uint32_t phase =
                    (together == warp_size ? ~0u : (1u << together) - 1) << first;
                if (!(waiting & phase)) continue;
                total += 2;
                uint32_t busy = 0;  // banks
                for_each_of(waiting & phase, [&](unsigned lane) {
                    const uint32_t bank = 1u << request.at[lane] / 4 % 32;
                    if (busy & bank) return;
                    busy |= bank;
                    if (changed.add(request.at[lane])) waiting &= ~(1u << lane);
                });
            }
        }
        requests += rounds - 1;
        passes += total;
        smooth += total;
        return total;
    }

    static unsigned addresses_of(const Request& request) {
        Set<warp_size> addresses;
        for_each_of(request.lanes, [&](unsigned lane) { addresses.add(request.at[lane]); });
        return addresses.count;
    }

    static unsigned passes_of(const Request& request, uint32_t lanes, unsigned words) {
        Set<warp_size> different;
        for_each_of(lanes, [&](unsigned lane) {
            for (unsigned i = 0; i < words; i++) different.add(request.at[lane] / 4 + i);
        });
        unsigned in_bank[32] = {}, most = 0;
        for (unsigned i = 0; i < different.count; i++)
            most = std::max(most, ++in_bank[different.values[i] % 32]);
        return most;
    }

    // Lanes that change one word take turns, as those do whose words are in one bank.
    static unsigned turns_of(const Request& request, uint32_t lanes, unsigned words) {
        unsigned in_bank[32] = {}, most = 0;
        for_each_of(lanes, [&](unsigned lane) {
            for (unsigned i = 0; i < words; i++)
                most = std::max(most, ++in_bank[(request.at[lane] / 4 + i) % 32]);
        });
        return most;
    }
};

}  // namespace
}  // namespace simulator
