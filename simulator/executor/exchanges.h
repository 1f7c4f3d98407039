// What the lanes of a warp get from an exchange.
#pragma once
#include "../include/simulator/block.h"
#include "watcher.h"

namespace simulator {
namespace {

template <class Visit>
SIMULATOR_INLINE void for_each_lane(uint32_t lanes, Visit visit) {
    if (lanes == ~0u)  // nearly always
        for (unsigned lane = 0; lane < warp_size; lane++) visit(lane);
    else
        for (; lanes; lanes &= lanes - 1) visit(unsigned(__builtin_ctz(lanes)));
}

template <class T, class Combine>
void reduce(Warp& warp, uint32_t lanes, Combine combine) {
    T total = warp.value[__builtin_ctz(lanes)];
    for_each_lane(
        lanes & (lanes - 1), [&](unsigned lane) { total = combine(total, T(warp.value[lane])); });
    for_each_lane(lanes, [&](unsigned lane) { warp.result[lane] = total; });
}

void deliver(Warp& warp, uint32_t lanes, Exchange exchange) {
    const auto add = [](auto a, auto b) { return a + b; };
    const auto least = [](auto a, auto b) { return b < a ? b : a; };
    const auto greatest = [](auto a, auto b) { return b > a ? b : a; };
    switch (exchange) {
        case Exchange::Sync:
            break;
        case Exchange::Shuffle:
            for_each_lane(lanes, [&](unsigned lane) {
                const unsigned source = warp.source[lane];
                warp.result[lane] = lanes >> source & 1 ? warp.value[source]
                                                        : warp.value[lane] ^ change_of_inactive;
            });
            break;
        case Exchange::Ballot: {
            uint64_t ballot = uint64_t(lanes) << 32;
            for_each_lane(
                lanes, [&](unsigned lane) { ballot |= uint64_t(warp.value[lane] != 0) << lane; });
            for_each_lane(lanes, [&](unsigned lane) { warp.result[lane] = ballot; });
            break;
        }
        case Exchange::MatchAny:
            for_each_lane(lanes, [&](unsigned lane) {
                warp.result[lane] = 0;
                for_each_lane(lanes, [&](unsigned other) {
                    warp.result[lane] |= uint64_t(warp.value[lane] == warp.value[other]) << other;
                });
            });
            break;
        case Exchange::MatchAll: {
            bool same = true;
            for_each_lane(lanes, [&](unsigned lane) {
                same &= warp.value[lane] == warp.value[__builtin_ctz(lanes)];
            });
            for_each_lane(lanes, [&](unsigned lane) { warp.result[lane] = same ? lanes : 0; });
            break;
        }
        case Exchange::AddSigned:
        case Exchange::AddUnsigned:
            return reduce<uint32_t>(warp, lanes, add);
        case Exchange::MinSigned:
            return reduce<int32_t>(warp, lanes, least);
        case Exchange::MinUnsigned:
            return reduce<uint32_t>(warp, lanes, least);
        case Exchange::MaxSigned:
            return reduce<int32_t>(warp, lanes, greatest);
        case Exchange::MaxUnsigned:
            return reduce<uint32_t>(warp, lanes, greatest);
        case Exchange::And:
            return reduce<uint32_t>(warp, lanes, [](auto a, auto b) { return a & b; });
        case Exchange::Or:
            return reduce<uint32_t>(warp, lanes, [](auto a, auto b) { return a | b; });
        case Exchange::Xor:
            return reduce<uint32_t>(warp, lanes, [](auto a, auto b) { return a ^ b; });
        case Exchange::Meet: {
            Meeting* meetings[warp_size] = {};
            for_each_lane(lanes, [&](unsigned lane) {
                meetings[lane] = reinterpret_cast<Meeting*>(warp.value[lane]);
            });
            return meetings[__builtin_ctz(lanes)]->run(meetings, lanes);
        }
    }
}

}  // namespace
}  // namespace simulator
