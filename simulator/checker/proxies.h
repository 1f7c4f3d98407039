// Fences between proxies. Copies in bulk and the products of warpgroups read and write shared
// memory in another way than threads do ("through the async proxy"): what a thread has written they
// read for certain only if fence.proxy.async has followed the write, and comes before what asks for
// them.
#pragma once
#include "recorder.h"

namespace simulator {
namespace {

void Asynchronous::fence(ProxyFence fence) {
    recorder.inspect(recorder.block->rank / warp_size);
    const unsigned rank = recorder.block->rank;
    for (auto& [barrier, it] : mbarriers) it.is_fenced = true;
    if (fence != ProxyFence::Async) return;
    OfBlock& of = of_block();
    const uint32_t time = ++recorder.order.now;
    recorder.order.now++;
    if (of.fences.empty()) of.fences.resize(max_threads);
    of.fences[rank].push_back(time);
    of.all_fences.push_back({time, rank});
}

// Whether a fence of some thread comes after a touch of the running block, and before what the
// thread does now.
bool Asynchronous::is_fenced(const Touch& before, unsigned thread) {
    OfBlock& of = of_block();
    if (of.all_fences.empty()) return false;
    const auto is_known = [&](uint32_t time, unsigned by) {
        return recorder.order.is_ordered(Touch(time, by, 0, Strength::Plain), thread);
    };
    const auto& own = of.fences[before.thread];
    const auto first = std::upper_bound(own.begin(), own.end(), before.time);
    if (first != own.end() && is_known(*first, before.thread)) return true;
    const auto& issuers = of.fences[thread];
    if (!issuers.empty() && issuers.back() > before.time) return true;
    for (auto it = std::upper_bound(
             of.all_fences.begin(), of.all_fences.end(), std::pair{before.time, ~0u});
         it != of.all_fences.end(); ++it)
        if (is_known(it->first, it->second)) return true;
    return false;
}

// Asynchronous work touches what threads have touched before, and is ordered after them.
void Asynchronous::cross_proxies(const Site& site, Region& region, size_t spot, Touch touch,
                                 uintptr_t address) {
    if (!region.is_shared() || site.role == Role::Done) return;
    const uint32_t begin = recorder.order.shared_begin;
    const auto cross = [&](const Touch& before, bool was_written) {
        if (before.time < std::max(begin, recorder.order.block_begin)) return;
        const Site& other = recorder.sites[before.site];
        if (other.is_by_proxy) return;
        if (!recorder.order.is_ordered(before, touch.thread)) return;  // a race, which is told
        if (is_fenced(before, touch.thread)) return;
        Finding finding =
            recorder.at("missing proxy fence", site, &region, address, 1, touch.thread);
        finding.other = {access_names[int(other.kind)],        &other,       "", 0,
                         recorder.order.block_at(before.time), before.thread};
        const bool reads = site.kind == Kind::Read;
        finding.severity = reads ? Severity::Error : Severity::Note;
        finding.hazard = reads         ? "read after write"
                         : was_written ? "write after write"
                                       : "write after read";
        finding.message = "no fence.proxy.async comes between the two";
        recorder.report(finding);
    };
    if (!region.writes.empty()) cross(region.writes.get(spot), true);
    if (site.kind == Kind::Read || region.reads.empty()) return;
    region.reads.for_each_last(spot, [&](const Touch& read) { cross(read, false); });
}

}  // namespace
}  // namespace simulator
