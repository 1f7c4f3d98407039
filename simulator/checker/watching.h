// A check from its beginning to its end, as the executor announces it: launches, blocks, and where
// their threads synchronise.
#pragma once
#include <mutex>
#include <numeric>
#include <random>
#include "recorder.h"

namespace simulator {
namespace {

void Recorder::begin(unsigned with_seed, uint64_t threads, bool with_traffic, double seconds) {
    std::vector<Variable> known_variables = std::move(variables);
    auto known_kernels = std::move(kernels);
    this->~Recorder();
    new (this) Recorder;
    variables = std::move(known_variables);
    kernels = std::move(known_kernels);
    for (const Variable& it : variables) watch_host(it);
    const Memory guarded = guarded_range();
    host.heap = reinterpret_cast<uintptr_t>(guarded.first);
    host.heap_end = host.heap + guarded.second;
    seed = with_seed;
    most_threads = threads;
    is_counting = with_traffic;
    static Trace kept;
    trace = &kept;
    trace->clear();  // of what a check left that was interrupted
    time_limit.begin(seconds);
    failed_from = nullptr;
    watcher = this;
}

void Recorder::end() {
    settle_work();
    undefined.end();
    look_at_unset_reads(false);
    find_unwritten();
    findings.drop_explained();
    trace->shrink();
    for (void* memory : kept_back) free(memory);
    watcher = nullptr;
}

// ---- Launches and blocks

// "k" of "ns::k<T, 4>".
std::string plain_name(const std::string& kernel) {
    const std::string name = kernel.substr(0, kernel.find('<'));
    const size_t colon = name.rfind(':');
    return colon == std::string::npos ? name : name.substr(colon + 1);
}

// As written; but of `kernel<<<...>>>` with a pointer, the name of the kernel that it points to.
std::string Recorder::name_of(const Launch& launch) const {
    const Library library = library_of(launch.function);
    const size_t offset = reinterpret_cast<uintptr_t>(launch.function) - library.base;
    const auto found = kernels.find({library.path, offset});
    if (found == kernels.end() || plain_name(found->second) == plain_name(launch.name))
        return launch.name;
    return found->second;
}

void Recorder::begin_launch(const Launch& launch, Memory shared,
                            std::initializer_list<Memory> executors, Memory own_stack) {
    const Library library = library_of(reinterpret_cast<const void*>(launch.run_threads));
    const uint64_t blocks = uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
    const uint32_t first = launches.empty() ? 1 : launches.back().first + launches.back().blocks;
    launches.push_back({name_of(launch), launch.file, launch.line, launch.grid, launch.block,
                        launch.shared, blocks, 0, first});

    auto& threads = order_of_threads;
    threads.resize(std::min<uint64_t>(
        max_threads, uint64_t(launch.block.x) * launch.block.y * launch.block.z));
    std::iota(threads.begin(), threads.end(), 0);
    if (seed) std::shuffle(threads.begin(), threads.end(), std::mt19937(seed + launches.size()));
    order.begin_launch();
    if (streams.is_open && !streams.works.back().since)
        streams.works.back().since = order.launch_begin;
    asynchronous.begin_launch();
    if (stepper) stepper->begin_launch(launch);
    started.clear();
    begun = 0;
    cluster_size = launch.cluster.x * launch.cluster.y * launch.cluster.z;
    is_cooperative = launch.cooperative || cluster_size;
    sample.begin(blocks, launch.grid.x, threads.size(), most_threads, skips_blocks);
    accesses = 0;
    reuses.begin_launch(first);
    stretches.begin_launch();
    const auto known = kernels.find(
        {library_of(launch.function).path,
         reinterpret_cast<uintptr_t>(launch.function) - library_of(launch.function).base});
    if (known != kernels.end()) launches.back().full_name = known->second;

    // What is not a tensor's: the block's shared arrays, and the memory in which threads run. Those
    // of an earlier launch stay for the report alone.
    for (Region& region : regions)
        if (region.type >= Region::Shared) region.end = region.begin;
    sorted.clear();
    for (auto [begin, bytes] : constants(library))
        add(reinterpret_cast<uintptr_t>(begin), bytes, Region::Private, "");
    add(reinterpret_cast<uintptr_t>(threads.data()), threads.size() * sizeof threads[0],
        Region::Private, "");
    latest = &launch;
    launching_stack = own_stack.second ? own_stack : host_stack();
    host_variable = host_variable_given_to(launch);
    // On the stack; but on the heap if the kernel is launched by its address.
    for (const Memory& it :
         {Memory(&launch, sizeof launch), Memory(launch.body, launch.body_bytes)})
        if (uintptr_t(it.first) - uintptr_t(launching_stack.first) >= launching_stack.second)
            add(uintptr_t(it.first), it.second, Region::Private, "");
    add_variables(launch, library, false);
    begin_thread(launch, shared, executors);
    if (own_stack.second) add(uintptr_t(own_stack.first), own_stack.second, Region::Private, "");

    note_what_the_host_wrote();
    undefined.begin_launch(launch, !is_cooperative && !reuses.is_on);
}

// Its thread-local memory, where shared arrays are, and its stacks.
void Recorder::begin_thread(const Launch& launch, Memory shared,
                            std::initializer_list<Memory> executors) {
    add_variables(launch, library_of(reinterpret_cast<const void*>(launch.run_threads)), true);
    add(reinterpret_cast<uintptr_t>(shared.first), shared.second, Region::Shared,
        "dynamic shared memory");
    for (auto [begin, bytes] : executors)
        add(reinterpret_cast<uintptr_t>(begin), bytes, Region::Private, "");
    const auto [begin, bytes] = host_stack();
    add(reinterpret_cast<uintptr_t>(begin), bytes, Region::Private, "");
}

void Recorder::add_variables(const Launch& launch, const Library& library, bool are_shared) {
    const uintptr_t base = are_shared ? thread_local_memory(library) : library.base;
    const std::string kernel = plain_name(launches.back().name);
    const bool is_known =
        std::any_of(
            variables.begin(), variables.end(),
            [&](const auto& it) { return it.library == library.path && it.owner == kernel; }) ||
        std::any_of(kernels.begin(), kernels.end(), [&](const auto& it) {
            return it.first.first == library.path && plain_name(it.second) == kernel;
        });
    for (const Variable& it : variables) {
        // What another kernel declares is out of this one's bounds.
        if (is_known && it.is_kernels && it.owner != kernel) continue;
        if (it.library == library.path && it.is_shared == are_shared)
            add(base + it.offset, it.bytes,
                it.name.empty() ? Region::Private
                : it.is_shared  ? Region::Shared
                                : Region::Device,
                it.name);
    }
}

// Of fresh memory, since it was poisoned, or since a launch of which not all blocks are traced.
void Recorder::note_what_the_host_wrote() {
    for (Region& region : regions) {
        if (region.type != Region::Fresh || !region.is_alive() || region.written_before) continue;
        const size_t poisoned = count_poisoned(region);
        region.written_before = poisoned == 0 && region.cells_written == 0;
        if (region.written_before || poisoned == (region.size + 7) / 8 ||
            region.bytes_written() == region.size)
            continue;
        if (region.writes.empty()) region.writes.make(region.cells(), !is_sampled);
        for (size_t i = 0; i < region.cells(); i++) {
            if (!region.is_written(i) && !is_untouched(region, i))
                region.writes.at(scattered(i)).time = settled;
        }
    }
}

// Other seeds than 0 shuffle the threads of a block, anew for each launch, and step through the
// blocks in strides that meet each of them once.
uint64_t Recorder::block_in_order(uint64_t n) const {
    const uint64_t blocks = launches.back().blocks;
    uint64_t stride = seed ? seed * 0x9E3779B97F4A7C15u >> 40 | 1 : 1;
    while (std::gcd(stride, blocks) != 1) stride += 2;
    return (n * (stride % blocks) + seed) % blocks;
}

// Where only what the others cost is wanted.
bool Recorder::leaves_out(uint64_t index) const {
    return reuses.is_on && skips_blocks && launches.back().recorded && sample.leaves_out() &&
           !sample.takes(index);
}

void Recorder::begin_block(Block& to_run, uint64_t index) {
    if (sorted.empty()) arrange();
    LaunchRecord& launch = launches.back();
    is_sampled = sample.leaves_out();
    const bool is_first = launch.recorded == 0;
    const bool traced = is_first || sample.takes(index);
    launch.recorded += traced;
    const bool keeps = is_cooperative || !started.empty();
    block = &to_run;
    serial = launch.first + index;
    // The blocks of a cluster begin together.
    const bool joins = cluster_size && begun++ % cluster_size;
    if (traced)
        order.begin_block(serial, order_of_threads.size(), joins ? order.shared_begin : 0, keeps);
    stopped = false;
    mode = traced ? Mode::Full : Mode::Bounds;
    if (traced) {
        std::fill_n(spins, order_of_threads.size(), Spin());
        std::fill_n(skips, order_of_threads.size(), Skip());
        std::fill_n(has_returned, order_of_threads.size(), false);
        for (Beyond& it : beyond) it.clear();
        asynchronous.begin_block(to_run);
    }
    fences = {};
    last_store = {};
    started[block] = {serial, mode, {}, {}};
}

void Recorder::resume_block(Block& to_run) {
    block = &to_run;
    std::fill_n(spins, order_of_threads.size(), Spin());
    const Started& it = started[block];
    serial = it.serial;
    mode = it.mode;
    fences = it.fences;
    if (mode == Mode::Full) order.resume_block(serial);
}

void Recorder::leave_block(const Block& at) {
    started[&at].fences = fences;
    started[&at].spins.assign(spins, spins + at.size);
    if (mode != Mode::Full) return;
    for (unsigned w = 0; w * warp_size < at.size; w++) flush(w);
}

// Its threads wait for what they waited for.
void Recorder::return_to_block(Block& to_run) {
    resume_block(to_run);
    const auto& kept = started[block].spins;
    std::copy(kept.begin(), kept.end(), spins);
}

bool Recorder::end_block(const Error* error) {
    started.erase(block);
    bool is_told = false;
    const bool was_traced = mode == Mode::Full;
    if (was_traced) {
        for (unsigned w = 0; w * warp_size < order_of_threads.size(); w++) flush(w);
        if (!error && !is_cooperative) look_at_unset_reads(true);
        is_told = asynchronous.end_block(error);
        stretches.end_block(order_of_threads.size());
        launches.back().ran = stretches.of_launch();
    }
    mode = Mode::Off;
    if (launches.back().recorded == 1 && !is_cooperative) sample.learn(accesses + stretches.calls);
    launches.back().ended += !is_dropped() && !time_limit.is_over;
    if (!error || stopped) return true;
    if (is_told) return false;
    const bool illegal = error->code == cudaErrorIllegalAddress &&
                         error->message.find("a call of") == std::string::npos;
    if (illegal && reported == serial) return true;
    Finding finding{};
    finding.kind =
        error->code == cudaErrorAssert                                ? "assertion"
        : error->code == cudaErrorInvalidConfiguration                ? "refused launch"
        : error->message.find("wait for others") != std::string::npos ? "deadlock"
        : illegal                                                     ? "out of bounds"
                                                                      : kind_of(error->message);
    finding.message = error->message;
    finding.place.block = serial;
    finding.place.thread = block->rank;
    if (failed_from)
        finding.place.site =
            &asynchronous.site_of("", "", 0, Kind::Read, true, std::exchange(failed_from, nullptr));
    if (const Spin& spin = spins[block->rank];
        finding.is("deadlock") && was_traced && spin.is_waiting())
        finding.place.site = &sites[spin.site],
        finding.place.access = access_names[int(sites[spin.site].kind)];
    report(finding);
    return !finding.is("deadlock");
}

// Blocks that wait for each other are on threads of their own.
void Recorder::stood(const Block& at, const std::vector<Standing>& threads) {
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    blocks_stood.push_back({at.index, threads});
}

void Recorder::end_late_launch() {
    Finding finding{};
    finding.kind = "timeout";
    finding.message = text("%g seconds", time_limit.seconds);
    finding.place.block = serial;
    if (block) finding.place.thread = block->rank;
    report(finding);
}

// ---- Synchronisation

void Recorder::barrier(const Block& at) {
    if (stepper) stepper->barrier();
    if (mode != Mode::Full) return;
    for (unsigned w = 0; w * warp_size < at.size; w++) flush(w);
    launches.back().barriers++;
    order.barrier();
    std::fill_n(fences.own, at.size, false);
    std::fill_n(
        fences.for_all, at.size, std::count(fences.for_all, fences.for_all + at.size, true));
    look_at_skips(at);
    const Thread* first = nullptr;
    unsigned first_rank = 0;
    for (unsigned rank = 0; rank < at.size; rank++) {
        if (!(at.warps[rank / warp_size].alive >> rank % warp_size & 1)) continue;
        const Thread& thread = at.threads[rank];
        if (!first) {
            first = &thread, first_rank = rank;
        } else if (thread.line != first->line ||
                   (thread.file != first->file && strcmp(thread.file, first->file))) {
            Finding finding{};
            finding.kind = "divergent barrier";
            finding.place = {first->what, nullptr, first->file, first->line, serial, first_rank};
            finding.other = {thread.what, nullptr, thread.file, thread.line, serial, rank};
            report(finding);
            return;
        }
    }
    if (first) look_at_ended(at, first_rank, "divergent barrier", 0, at.size, ~0u);
}

// Those that wait have gone past the barrier as often as each other, and as often as those that
// have ended since.
void Recorder::look_at_skips(const Block& at) {
    const auto is_alive = [&](unsigned rank) {
        return at.warps[rank / warp_size].alive >> rank % warp_size & 1;
    };
    const Skip* most = std::max_element(
        skips, skips + at.size, [](const Skip& a, const Skip& b) { return a.times < b.times; });
    if (!most->times) return;
    for (unsigned rank = 0; rank < at.size; rank++) {
        if (!is_alive(rank) || skips[rank].times == most->times) continue;
        const Thread& thread = at.threads[rank];
        Finding finding{};
        finding.kind = "divergent barrier";
        finding.message = "skipped";
        finding.place = {thread.what, nullptr, thread.file, thread.line, serial, rank};
        finding.other = {
            "continue", nullptr, most->file, most->line, serial, unsigned(most - skips)};
        report(finding);
        std::fill_n(skips, at.size, Skip());
        return;
    }
}

// This thread waits, and others that it waits for have ended, but by no return.
void Recorder::look_at_ended(const Block& at, unsigned rank, const char* kind, unsigned begin,
                             unsigned end, uint32_t lanes) {
    for (unsigned other = begin; other < std::min<unsigned>(end, at.size); other++) {
        const uint32_t alive = at.warps[other / warp_size].alive;
        if (has_returned[other] || (alive | ~lanes) >> other % warp_size & 1) continue;
        const Thread& thread = at.threads[rank];
        Finding finding{};
        finding.kind = kind;
        finding.severity = Severity::Note;
        finding.message = "ended";
        finding.place = {thread.what, nullptr, thread.file, thread.line, serial, rank};
        finding.other = {"end", nullptr, "", 0, serial, other};
        report(finding);
        return;
    }
}

void Recorder::tile(const Block&, unsigned first, unsigned warps) {
    if (mode != Mode::Full) return;
    for (unsigned w = first; w < first + warps; w++) flush(w);
    order.meeting_of_warps(first, warps);
}

void Recorder::exchange(const Block& at, unsigned w, uint32_t lanes, Exchange kind) {
    const Warp& warp = at.warps[w];
    if (is_repeating && kind == Exchange::Shuffle)
        undefined.look_at_lanes(at.threads[w * warp_size + __builtin_ctz(lanes)]);
    if (mode != Mode::Full) return;
    launches.back().shuffles += kind == Exchange::Shuffle;
    if (lanes == warp.alive)
        flush(w);
    else
        inspect(w);
    const unsigned rest = at.size - w * warp_size;
    order.meeting(w, lanes, rest >= warp_size ? ~0u : (1u << rest) - 1);
    if (kind != Exchange::Shuffle) return;
    const unsigned first = w * warp_size, some = first + __builtin_ctz(lanes);
    look_at_ended(at, some, "inactive lane", first, first + warp_size, warp.key[some - first]);
    // A lane that moves up or down may read past the others' end: it matters if it uses what it
    // gets. One that names a lane wants its value.
    for_each_of(lanes, [&](unsigned lane) {
        if (lanes >> warp.source[lane] & 1) return;
        const Thread& thread = at.threads[w * warp_size + lane];
        const std::string message = text("lane %u reads lane %u, which takes no part (mask 0x%08x)",
                                         lane, warp.source[lane], uint32_t(warp.key[lane]));
        if (strstr(thread.what, "up") || strstr(thread.what, "down"))
            return undefined.note_lane(thread, w * warp_size + lane, message);
        Finding finding{};
        finding.kind = "inactive lane";
        finding.message = message;
        finding.place = {
            thread.what, nullptr, thread.file, thread.line, serial, w * warp_size + lane};
        report(finding);
    });
}

void Recorder::arrived(uintptr_t barrier, bool is_last) {
    if (mode != Mode::Full) return;
    inspect_rest(block->rank, 0);
    order.arrive(barrier, block->rank, is_last);
}

void Recorder::passed(uintptr_t barrier) {
    if (mode != Mode::Full) return;
    inspect_rest(block->rank, 0);
    asynchronous.passed(reinterpret_cast<const uint64_t*>(barrier));
    order.pass(barrier, block->rank);
}

}  // namespace
}  // namespace simulator
