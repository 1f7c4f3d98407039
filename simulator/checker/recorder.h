// The checker: sees every access of an instrumented kernel, and remembers what was wrong with it
// and what it cost.
//
// The compiler calls a hook before each access (hooks.h), the executor says when threads
// synchronise (watching.h). A check runs its blocks one after another on one thread, so nothing
// here is locked, and the same call gives the same report (report.h).
//
// A hook itself sees only that an access is within bounds (bounds.h) and aligned, and adds it to a
// trace (trace.h). When the threads of a warp meet, the trace is cut into the warp's requests
// (inspection.h), and each is held against who touched the same memory before (shadow.h,
// happens_before.h) and counted (traffic.h).
#pragma once
#include <map>
#include <mutex>
#include "../executor/arena.h"
#include "../executor/watcher.h"
#include "asynchronous.h"
#include "beyond.h"
#include "findings.h"
#include "happens_before.h"
#include "library_memory.h"
#include "records.h"
#include "reuse.h"
#include "sampling.h"
#include "streams.h"
#include "stretches.h"
#include "trace.h"
#include "undefined.h"

namespace simulator {
namespace {

struct WrongIndex;
struct WrongPointer;

class Recorder final : public Watcher {
  public:
    // What becomes of accesses: nothing, because no block of a check runs; they are kept within
    // bounds; or they are traced.
    enum class Mode : uint8_t { Off, Bounds, Full };

    Mode mode = Mode::Off;
    bool is_counting = true;    // traffic too
    bool skips_blocks = false;  // that are not traced
    int told_processors = 2;    // few, and the same on every machine
    unsigned seed = 0;
    uint64_t most_threads = 0;  // of a launch, that are traced; 0: as many as it pays

    bool is_on() const { return watcher == this; }  // a check is under way
    int processors() const override { return told_processors; }

    std::deque<Region> regions;
    std::deque<Site> sites;
    Findings findings;
    std::vector<LaunchRecord> launches;
    std::vector<Variable> variables;
    std::map<std::pair<std::string, size_t>, std::string> kernels;  // by library and offset
    std::vector<BlockStood> blocks_stood;

    void begin(unsigned with_seed, uint64_t threads, bool with_traffic, double seconds);
    void end();

    Region& add(uintptr_t begin, size_t bytes, Region::Type type, std::string name, size_t pad = 0);
    Region* region_at(uintptr_t address);

    // From here on the host's accesses to a variable of the device are seen.
    void watch_host(const Variable& variable);

    // ---- from the executor

    void begin_launch(const Launch& launch, Memory shared, std::initializer_list<Memory> executors,
                      Memory own_stack) override;
    void refused_map(const void* caller, const char* reason) override;
    void forget_launch() override {
        launches.pop_back();
        if (stepper) stepper->forget_launch();
    }
    uint64_t block_in_order(uint64_t n) const override;
    bool leaves_out(uint64_t index) const override;
    const uint16_t* threads_in_order() const override { return order_of_threads.data(); }
    void begin_block(Block& block, uint64_t index) override;
    bool end_block(const Error* error) override;
    uint64_t blocks_to_repeat() const override { return undefined.blocks(); }
    void repeat(const std::function<bool(uint64_t)>& run) override { undefined.repeat(run); }
    void loaded(void* const* registers, int count, const char* file, int line) override {
        if (undefined.blocks())
            undefined.note_load(registers, count, asynchronous.site_of("tcgen05.ld", file, line));
    }
    void loads_done(const void* stack_end) override { undefined.loads_done(stack_end); }
    void barrier(const Block& block) override;
    void exchange(const Block& block, unsigned warp, uint32_t lanes, Exchange kind) override;
    void tile(const Block& block, unsigned first, unsigned warps) override;
    void begin_thread(const Launch& launch, Memory shared,
                      std::initializer_list<Memory> executors) override;
    void grid() override { order.begin_phase(); }
    void resume_block(Block& block) override;
    void leave_block(const Block& block) override;
    void return_to_block(Block& block) override;
    void arrived(uintptr_t barrier, bool is_last) override;
    void passed(uintptr_t barrier) override;
    void allocated(uintptr_t begin, size_t bytes, size_t pad, cudaMemoryType type) override;
    bool freed(uintptr_t begin, void* memory) override;
    void written(uintptr_t begin, size_t bytes) override;
    void brought(uintptr_t to, uintptr_t from, size_t bytes) override;
    bool passes_end(uintptr_t begin, size_t bytes, bool writes) override;
    void host_asserted(const char* condition, const char* in, uintptr_t pc);
    void forbid_bringing(uintptr_t to, uintptr_t from, size_t bytes);
    void put(const void* stream, bool is_blocking) override;
    void made_stream() override { streams.is_used = true; }
    void touches(uintptr_t address, size_t bytes, bool writes) override;
    void recorded(const void* event, const void* stream) override {
        streams.recorded(event, stream);
    }
    void waits(const void* stream, const void* event) override { streams.waits(stream, event); }
    void synchronised() override {
        settle_work();
        streams.host_waits();
        note_host_wait();
    }
    void synchronised(const void* of) override {
        settle_work();
        streams.host_waits(of);
        note_host_wait();
    }
    // Launches that were made when the host waited, and how many of these it then knew to be over.
    struct HostWait {
        size_t made, over;
    };
    std::vector<HostWait> host_waits;
    void note_host_wait();
    void refused(const Launch& launch, const Error& error) override;
    void refused_call(const Error& error) override;
    void stood(const Block& block, const std::vector<Standing>& threads) override;
    void end_late_launch() override;

    // What the hooks look up: a site, and the memory that it touched last.
    struct alignas(32) Slot {
        uintptr_t pc, begin;
        size_t size;
        uint16_t id;
        bool is_private;

        SIMULATOR_INLINE bool takes(uintptr_t address, unsigned bytes) const {
            const size_t offset = address - begin;
            return offset < size && bytes <= size - offset && !(address & (bytes - 1));
        }
    };

    // ---- from the hooks

    template <Kind kind>
    SIMULATOR_INLINE void access(uintptr_t address, unsigned size, uintptr_t pc);
    template <Kind kind>
    SIMULATOR_INLINE void access_at(const Slot& slot, uintptr_t address, unsigned size);
    // Not inlined, so that blocks that are only kept within bounds pay for no registers of this.
    template <Kind kind>
    [[gnu::noinline]] void access_in_trace(const Slot& slot, uintptr_t address, unsigned size);

    // Of several bytes that are no single access: the largest that certainly make it up.
    template <Kind kind>
    void access_range(uintptr_t address, size_t bytes, uintptr_t pc);

    // The running thread has made an atomic access that left memory as it was.
    void changed_nothing(uintptr_t address, unsigned size, uintptr_t pc);
    // And here it reads what atomics change, of which there is no more to know.
    void loaded(uintptr_t address, uintptr_t pc);

    // The thread's last access was a strong one: it takes what others have given away there, and
    // gives away itself.
    void synchronise(uintptr_t address, unsigned size, bool takes, bool gives,
                     const Change& change = {});

    void fence();
    // A volatile store: after a fence, perhaps in a loop of such, it tells others something. It may
    // also give back a lock, which shows when it has been made.
    void note_store(uintptr_t address, unsigned size, uintptr_t pc);
    // The value of the last atomicExch is used.
    void used_old_value() {
        if (mode == Mode::Full) sites[last_swap].uses_old = true;
    }
    uint64_t changes() const override { return changes_made; }
    uint64_t changes_made = 0;
    bool host_is_device = false;       // it carries out an algorithm of the device
    bool device_tensors = false;       // tensors stand for a GPU's, which the host cannot reach
    Scope next_scope = Scope::Device;  // of the next fence or atomic
    bool next_acquires = false;        // the next atomic acquires

    // The running thread is about to use an index beyond what an array is declared with, or this
    // pointer, which is not aligned as its type wants it.
    void beyond_array(const WrongIndex& wrong, uint64_t index, const void* from);
    void misaligned_for_type(const WrongPointer& wrong, uintptr_t pointer, const void* from);
    uintptr_t misaligned_pointer = 0;
    // It is about to use what lies behind the object that its expression names.
    void beyond_object(const WrongPointer& wrong, uintptr_t pointer, const void* from);

    // A kernel has taken memory by `new` or malloc, or gives some back. Until then it is known, and
    // only its bounds are looked at.
    void* took(void* memory, size_t bytes);
    void gave_back(void* memory);
    void* take_for_host(size_t bytes) {
        return is_on() && mode == Mode::Off ? take_host_memory(bytes) : nullptr;
    }
    void* took_again(void* memory, size_t bytes, const void* caller);

    // The running thread begins a stretch of its code.
    void ran(uintptr_t at) {
        if (mode == Mode::Full) stretches.ran(block->rank, at);
    }

    WorkWatcher* work() override { return mode == Mode::Full ? &asynchronous : nullptr; }

    // The running thread has gone on to a loop's next round, past a barrier.
    void skips_barrier(const char* file, int line) {
        if (mode == Mode::Full) skips[block->rank] = {file, line, skips[block->rank].times + 1};
    }
    // It returns early.
    void returns() {
        if (mode == Mode::Full) has_returned[block->rank] = true;
    }

    Asynchronous asynchronous;
    Undefined undefined;
    Reuses reuses;
    Stretches stretches;
    Beyond beyond[max_threads / warp_size];
    unsigned counted_warp = 0;  // whose requests are accounted

    // For `undefined`.
    const Order& order_now() const { return order; }
    uint32_t serial_now() const { return serial; }
    bool has_heap() const { return uses_heap; }

  private:
    friend class Asynchronous;

    static constexpr size_t slots = 4 * most_sites;

    Block* block = nullptr;
    std::vector<uint16_t> order_of_threads;  // in which those of a block start
    Order order;
    Trace* trace = nullptr;  // kept from check to check
    // An access that changes nothing, and that a thread makes over and over, with no other between.
    struct Spin {
        uint64_t what = 0;
        unsigned site = 0, times = 0, count = 0;  // count: accesses in the trace, with this one
        bool is_waiting() const { return times > 1 << 10; }
    };
    Spin spins[max_threads] = {};
    // Which threads of the running block have fenced since the last barrier; and which for all, or
    // another one before a barrier.
    struct Fences {
        bool own[max_threads] = {}, for_all[max_threads] = {};
    } fences;
    struct {
        uintptr_t address;
        unsigned size, thread, site;  // size 0: there is none
    } last_store = {};                // volatile
    unsigned last_swap = 0;
    unsigned strong_at_once = 0;  // accesses for which there was no room in the trace
    // How often a thread has gone past a barrier, and where it did so last.
    struct Skip {
        const char* file;
        int line;
        unsigned times;
    };
    Skip skips[max_threads] = {};
    void look_at_skips(const Block& at);
    bool has_returned[max_threads] = {};  // early
    void look_at_ended(const Block& at, unsigned rank, const char* kind, unsigned begin,
                       unsigned end, uint32_t lanes);
    unsigned inspected[max_threads] = {};  // accesses of the trace, if not all of a warp's yet
    uint32_t serial = 0;                   // of the running block
    struct Started {
        uint32_t serial;
        Mode mode;
        Fences fences;
        std::vector<Spin> spins;
    };
    bool is_cooperative = false;
    unsigned cluster_size = 0;                // of the launch; 0 if it has none
    std::map<const Block*, Started> started;  // blocks that are under way
    uint64_t begun = 0;                       // blocks of the launch
    bool stopped = false;                     // a finding has ended this block
    uint32_t reported = 0;                    // the last block with a finding of an illegal access
    bool is_sampled = false;                  // not all blocks of this launch are traced
    Sample sample;
    uint64_t accesses = 0;  // traced, since this launch began

    // What was freed during the check, and is kept from being given out again until its end.
    std::vector<void*> kept_back;
    size_t bytes_kept_back = 0;
    Region* freed_at(uintptr_t address);

    std::mutex host_mutex;
    std::map<uintptr_t, size_t> of_host;  // what the host has from malloc or new
    bool is_of_host(uintptr_t address);
    const Launch* latest = nullptr;  // launch
    Memory launching_stack;          // of the host's function that launches it
    uintptr_t host_variable = 0;     // to which it is given a pointer
    bool is_of_host_stack(uintptr_t address);
    uintptr_t host_variable_given_to(const Launch& launch) const;
    bool uses_heap = false;
    std::map<uintptr_t, size_t> heap;  // of kernels: where it begins, and its bytes
    bool look_in_heap(Slot& slot, uintptr_t address, unsigned size);

    // What the host is not to read: see host.h.
    struct Host {
        struct Unwritten {
            uintptr_t begin, end, from;  // where it was copied to, and from
            const Region* region;
        };
        std::vector<Unwritten> unwritten;          // by address
        uintptr_t begin = ~uintptr_t(0), end = 0;  // of all those
        uint32_t waited = 0;                       // when it has waited for the device
        std::map<uintptr_t, Variable> variables;   // of the device, by address
        uintptr_t first_variable = ~uintptr_t(0), end_of_variables = 0;
        uintptr_t heap = 0, heap_end = 0;  // what it has from malloc or new[], and beyond
        // The block of the heap that was used last in each gigabyte, of which none has two.
        struct Block {
            uintptr_t begin = 0;
            size_t size = 0;
        } blocks[64];
        Block& block_at(uintptr_t address) { return blocks[(address >> 30) % 64]; }

        SIMULATOR_INLINE bool may_watch(uintptr_t address) {
            if (address - heap < heap_end - heap) {
                const Block& block = block_at(address);
                return address - block.begin >= block.size || address - begin < end - begin;
            }
            return arena.holds(address) || address - begin < end - begin ||
                   address - first_variable < end_of_variables - first_variable;
        }
    } host;
    bool leaves_block(uintptr_t address, size_t size, Kind kind, uintptr_t pc);
    Region* region_of_variable(uintptr_t address);
    [[gnu::noinline]] void host_access(uintptr_t address, size_t size, Kind kind, uintptr_t pc);
    Streams streams;
    void note_touched(Streams::Work& work);
    void settle_work();
    void report_streams(const Streams::Work& work, const Streams::Span& ours,
                        const Streams::Work& other, const Streams::Span& theirs);
    void host_reads_copy(uintptr_t address, size_t size, uintptr_t pc);
    Site* host_site(uintptr_t pc, Kind kind);

    std::vector<Region*> sorted;
    Slot table[slots] = {};  // of sites, by a hash of their addresses

    // What is read where there is no trace: the last address, and how often one after the other.
    static constexpr unsigned waits_after = 1 << 12;
    uintptr_t last_address = 0;
    unsigned repeats = 0;
    // Requests of the warp that is looked at, which may go on in its next turns.
    struct Pending {
        Site* site;
        Region* region;
        Request request;
    };
    static constexpr size_t most_pending = 16;
    std::vector<Pending> pending;
    // Of each site: where the last of what it has written so ends.
    uintptr_t written_to[most_sites] = {};
    void note_ends(unsigned site);
    template <Kind kind>
    SIMULATOR_INLINE void note_in_bounds(uintptr_t address, unsigned size, const Slot& slot);
    [[gnu::noinline]] void give_up_repeating(const Site& site, uintptr_t address, unsigned size);
    void wait(unsigned site);
    void wait_for_load(uintptr_t pc);

    // A hook comes before its write: what was written shows when the next one comes, or the trace
    // is looked at.
    struct LastWrite {
        const Access* access = nullptr;
        uintptr_t address;
        unsigned size;
    } last_write;
    SIMULATOR_INLINE void note_value();
    // A number from 1 to 127.
    SIMULATOR_INLINE static unsigned digest(uintptr_t address, unsigned size);

    // The site's slot, or an empty one.
    SIMULATOR_INLINE Slot& slot_of(uintptr_t pc) {
        size_t i = pc % slots;
        while (table[i].pc != pc && table[i].pc) i = (i + 1) % slots;
        return table[i];
    }
    template <Kind kind>
    [[gnu::noinline]] void access_elsewhere(uintptr_t address, unsigned size, uintptr_t pc);
    static constexpr uintptr_t pointed_to = 1 << 12;  // bytes of what a pointer points to
    bool look(uintptr_t pc, uintptr_t address, unsigned size, Kind kind);
    void hand_over(uintptr_t address, bool takes, bool gives, Scope scope, const Change& change,
                   bool acquires);
    void settle_store();
    void note_section();
    Region* find(uintptr_t address) const;
    void arrange();
    void forget_places();

    void flush(unsigned warp);
    void flush_in_step(unsigned warp, const unsigned (&count)[warp_size], bool inspects);
    void count_beyond(unsigned warp);
    void count_out_of_step(unsigned warp, const unsigned (&count)[warp_size], unsigned from);
    template <class Visit>
    void by_region(Site& site, const Request& request, unsigned warp, Visit visit);
    void account(Site& site, Region& region, const Request& request);
    void inspect(unsigned warp, unsigned from = 0);
    void inspect_rest(unsigned thread, unsigned from);
    void inspect(unsigned thread, Access access, unsigned turn = ~0u);
    void inspect_at_once(Access access);
    void inspect(Site& site, Region& region, const Request& request, unsigned warp);
    void inspect_together(Site& site, Region& region, const Request& request, unsigned warp);
    void inspect_pending(unsigned warp);
    struct Inspection;
    void inspect_runs(const Inspection& it);
    void inspect_access(const Inspection& it, unsigned lane, unsigned i);
    unsigned value_of(const Inspection& it, unsigned lane, unsigned i) const;
    bool may_coincide(const Touch& before, const Touch& touch) const;
    void note_waiting(const Region& region, size_t spot, const Touch& touch);
    void note_guess(const Region& region, size_t spot, unsigned thread, uint32_t begin);
    bool is_any_written(const Region& region, size_t first, unsigned cells, uint32_t begin);

    void race(const Touch& before, const Touch& touch, const Region& region, uintptr_t address,
              unsigned size);
    void runs_over(Site& site, const Region& array, const Request& request, unsigned lane,
                   unsigned warp);
    void outside(Site& site, uintptr_t address, unsigned size);
    void misaligned(uintptr_t pc, uintptr_t address, unsigned size);
    Finding* report(Finding finding) {
        if (is_repeating) return undefined.failed(finding), nullptr;
        finding.launch = std::max<size_t>(1, launches.size()) - 1;
        return &findings.add(std::move(finding));
    }
    // Reads of cells that nobody had written: has anybody since?
    struct UnsetRead {
        Finding* finding;
        const Region* region;
        uintptr_t address;
        unsigned thread;
        uint32_t begin;
    };
    // The bytes of such a read of shared memory, and whether somebody writes there who has not read
    // them before: that write, and not a mistake, may be what the reader missed.
    struct UnsetBytes {
        size_t size;
        bool may_be_set;
    };
    std::map<uintptr_t, UnsetBytes> unset_bytes;
    void note_write_of_unset(const Region& region, size_t first, uintptr_t address, unsigned size,
                             const Touch& touch, uint32_t begin);
    bool is_only_updated(const UnsetRead& it, size_t first) const;
    static constexpr size_t most_unset_reads = 1 << 12;
    std::vector<UnsetRead> unset_reads;
    void look_at_unset_reads(bool of_shared);
    void note_unset_read(Finding& told);
    // A finding about an access.
    Finding at(const char* what, const Site& site, const Region* region, uintptr_t address,
               unsigned size, unsigned thread) const {
        return {what, "",    {access_names[int(site.kind)], &site, "", 0, serial, thread},
                {},   0,     address,
                size, region};
    }
    void note_what_the_host_wrote();
    std::string name_of(const Launch& launch) const;
    void add_variables(const Launch& launch, const Library& library, bool are_shared);
    bool has_stopped_threads() const;
    void find_unwritten();
    void find_unwritten_end(Region& region);
    void find_comb(const Region& region);
    Finding* report_unwritten(const Region& region, uintptr_t first, const std::string& message);
};

Recorder recorder;

}  // namespace
}  // namespace simulator
