// What the checker knows of asynchronous work: of copies and of the products of warpgroups.
//
// Work touches memory when it is asked for, in the name of the thread that asks: whoever touches
// the same must come before that, or wait. Until somebody has waited for it, nobody may touch what
// it writes, or write what it reads (flights.h). Then it touches memory once more, in the name of
// the thread that has waited, and from there on others may rely on it who come after that thread.
// So nothing depends on when the simulator carries it out, which is as late as may be; with a
// thread_order, some of it is carried out at once.
//
// copies.h has what is asked for and waited for, mbarriers.h what goes wrong with mbarriers,
// products.h the products of warpgroups, tensor_memory.h what works on tensor memory,
// scale_factors.h its scale factors, proxies.h the fences between proxies.
#pragma once
#include <bitset>
#include <deque>
#include <map>
#include <set>
#include "../executor/watcher.h"
#include "../include/simulator/tensor_memory.h"
#include "findings.h"
#include "flights.h"
#include "shadow.h"

namespace simulator {
namespace {

// How a wait at a line found the work of its thread, or of the block.
struct Waits {
    uint64_t times = 0, in_flight = 0, most = 0;  // in flight: stages, each time and at most
};

// What tensor cores were asked for at a line.
struct Products {
    std::string types;
    uint64_t products = 0, operations = 0;
};

class Asynchronous final : public WorkWatcher {
  public:
    bool is_watching = false, watches_registers = false;
    std::map<const Site*, Waits> waits;
    std::map<const Site*, Products> products;

    // ---- from the recorder
    Site& site_of(const Site& like);
    // Where the running thread asks for something.
    Site& site_of(const char* what, const char* file, int line, Kind kind = Kind::Read,
                  bool is_by_proxy = true, const void* from = told_from);
    void begin_launch();
    void begin_block(Block& block);
    bool end_block(const Error* error);  // whether it has told what made the block fail
    // An access of the running thread, before it is made.
    void look(uintptr_t address, unsigned size, Kind kind, const Site& site);
    void look_at_register(uintptr_t address, unsigned size, Kind kind, const Site& site);
    // Whether shared memory is the running block's, and not another's of its cluster.
    bool is_own(const Region& region) const;
    // The running thread has seen that a phase of a barrier has ended.
    void passed(const uint64_t* barrier);
    // Whether the running thread knows, by what others have told with copies too, that one has done
    // what it did then.
    bool has_happened(uint32_t time, unsigned by);
    // Whether a race is one with asynchronous work; then it gets words of its own.
    bool is_race_of(const Site& site, const Site& other, Finding& finding);
    void cross_proxies(const Site& site, Region& region, size_t spot, Touch touch,
                       uintptr_t address);

    // ---- from the executor
    void copy(const AsyncCopy& copy, const char* what, const char* file, int line) override;
    void commit_copies() override;
    void copies_done(size_t prior, const char* file, int line) override;
    void bulk_copy(const Block& of, BulkCopy& copy) override;
    void bulk_copy_done(const BulkCopy& copy) override;
    void commit_group() override;
    void groups_done(size_t prior, bool until_read, const char* file, int line) override;
    bool is_early() override;
    void fence(ProxyFence fence) override;
    void mbarrier_init(const uint64_t* barrier, uint32_t count, const char* file,
                       int line) override;
    void mbarrier_change(const uint64_t* barrier, int64_t bytes, uint32_t arriving, bool has_ended,
                         const char* what, const char* file, int line) override;
    void mbarrier_awaited(const uint64_t* barrier) override { mine().awaited = barrier; }
    void mbarrier_wait(const uint64_t* barrier, bool had_to_wait, const char* file,
                       int line) override;
    void product(const tensor_cores::Tile& tile, const char* what, const char* file,
                 int line) override;
    void warpgroup_product(const tensor_cores::WarpgroupTile& tile, uint64_t a, uint64_t b,
                           const void* const* registers_of_a, void* const* d, int count,
                           const char* file, int line) override;
    void warpgroup_fence() override;
    void warpgroup_commit() override;
    void warpgroup_done(unsigned prior, const char* file, int line) override;
    unsigned groups_left(unsigned most) override;
    void registers(unsigned count, bool is_more, const char* file, int line) override;
    void cta_group(int blocks, const char* what, const char* file, int line) override;
    void pair_columns(const char* what, const char* file, int line) override;
    void tensor_use(const tensor_cores::TensorUse& use) override;
    void tensor_fence(bool is_before) override;
    void narrow_arrival(const uint64_t* barrier, const char* file, int line) override;
    void tensor_columns(uint32_t first, uint32_t count, bool is_freed, const char* file,
                        int line) override;
    void tensor_conflict(const char* what, const char* file, int line, const char* other,
                         const char* other_file, int other_line) override;

  private:
    Site& done(const Site& asked);  // where it is seen to be done

    struct Range {
        uintptr_t begin;
        size_t bytes;
    };
    // What has been asked for and nobody has waited for. `barrier`: that it is to tell.
    struct Work {
        const Site* asked;
        unsigned thread;
        uint32_t block;
        const uint64_t* barrier;
        bool is_open;
    };
    struct OwnCopy {
        AsyncCopy copy;
        size_t batch;
        uint32_t id;
    };
    struct GroupCopy {
        BulkCopy copy;
        size_t group;
        bool is_read;
    };
    // Registers of a thread that a product uses: until it is done, or since it is.
    struct Registers {
        uintptr_t begin, end;
        bool is_a, is_done, is_touched;
        unsigned group;
        const Site* asked;
    };
    struct Reads {
        std::vector<Range> ranges;
        unsigned group;
        uint32_t id;
        const Site* asked;
    };
    // What a thread of the running block has asked for.
    struct Mine {
        std::deque<OwnCopy> copies;
        size_t batches = 0;
        std::deque<GroupCopy> group_copies;
        size_t groups = 0;
        std::vector<Registers> registers;
        std::deque<Reads> reads;
        unsigned products = 0, waits = 0;
        // Of tcgen05: what it has asked for reads of shared memory; its last fences.
        std::deque<Reads> tensor_reads;
        unsigned tensor_operations = 0;
        uint32_t fenced_before = 0, fenced_after = 0;
        bool has_fenced = false;
        // The last mbarrier that it has waited at.
        const uint64_t* waited_at = nullptr;
        bool was_stale = false;  // for a phase that it had seen end before, or that never was
        uint32_t works_before = 0;
        const Site* wait = nullptr;
        const uint64_t* awaited = nullptr;
        std::map<const uint64_t*, uint64_t> seen;  // how many phases of a barrier had ended then
        // What those knew, when they asked, whose copies it has waited for. That orders no memory
        // but what was copied, but it had happened. And since when.
        ClockPointer heard;
        uint32_t heard_at = 0;
        ClockPointer clock;  // all that it knows, at `clock_at`
        uint32_t clock_at = 0;
    };
    // Who was the last to use a column of tensor memory in a quarter of the lanes.
    struct ColumnUse {
        uint32_t time = 0;  // of tensor_time
        uint32_t ordered_at = 0;
        const Block* block = nullptr;
        unsigned thread = 0;
        const Site* site = nullptr;
        bool is_access = false;
    };
    struct Columns {
        ColumnUse writes[4][512], reads[4][512];
    };
    // A column of scale factors: of 4 blocks of each of 32 rows.
    struct CopiedScales {
        const Site* at;
        uint32_t words[32];
    };
    struct OfBlock {
        const Block* block = nullptr;
        std::unique_ptr<Columns> columns;
        std::bitset<512> is_allocated;                   // of the columns
        std::map<uint32_t, CopiedScales> copied_scales;  // by their column
        int cta_group = 0;  // that its first instruction on tensor memory has said
        const Site* said_group = nullptr;
        std::map<unsigned, Mine> threads;
        std::vector<std::vector<uint32_t>> fences;  // of each thread, when it has fenced proxies
        std::vector<std::pair<uint32_t, unsigned>> all_fences;  // and whoever it was
        unsigned registers[max_threads / 128 + 1] = {};
        const Site* more_registers = nullptr;
        uint64_t cluster_barriers = 0;                   // when it began
        std::map<uint32_t, const Site*> tensor_columns;  // by the first, who has allocated them
    };
    struct Mbarrier {
        uint32_t count, block, time;
        unsigned thread;
        uint64_t cluster_barriers;
        const Block* of;
        bool is_fenced;
        const Site *init, *expect;
        uint64_t announced = 0, ended = 0;
        std::map<uint32_t, const Site*> coming;  // copies that are to tell it
        // Who has arrived or waited when as many phases had ended as now, and when one less had.
        struct Visit {
            uint32_t time;
            unsigned thread;
            const Site* site;  // or null
        };
        std::vector<Visit> visits[2];
        ClockPointer given, given_ended;  // by who asked for what has told it, as Order::Phase has
    };
    // A tile that was copied into shared memory by a tensor map, and how.
    struct Tile {
        uintptr_t end;
        unsigned swizzle;
        const Site *asked, *done;
    };

    Mine& mine();
    OfBlock& of_block();
    uint32_t begin(const Site& asked, const uint64_t* barrier);
    void end(uint32_t id);
    Work* find(uint32_t id);
    void touch(Site& site, uintptr_t begin, size_t bytes, size_t granularity);
    void trace(const Site& site, uintptr_t at, unsigned size);
    void count_bulk(Site& site, uintptr_t begin, size_t bytes);
    void note_wait(const Site& at, size_t in_flight);
    template <class Visit>
    void for_each_range(const BulkCopy& copy, Visit visit);
    void done_reading(const BulkCopy& copy);
    void done_writing(const BulkCopy& copy);
    void visible(const uint64_t* barrier, const Site& user);
    void visit(Mbarrier& barrier, const Site* site);
    void may_be_early(const Mbarrier& barrier, const Site& wait);
    ClockPointer clock();
    bool explain(const Error& error);
    void look_at_other_block(uintptr_t address, unsigned size, Kind kind, const Site& site);
    void read_matrix(const Block& block, uint64_t descriptor, bool is_transposed, uint32_t first,
                     uint32_t lines, uint32_t row_bytes, uint32_t element_bytes, Reads& reads,
                     Site& asked);
    void tensor_done(const BulkCopy& completion);
    void order_columns(const tensor_cores::TensorUse& use, const Site& at);
    void look_for_unwritten(const tensor_cores::TensorUse& use, const OfBlock& of, const Site& at);
    void look_at_lane(const tensor_cores::TensorUse& use, const Site& at);
    void look_for_scales(const tensor_cores::TensorUse& use, const Site& at);
    void note_scales(const tensor_cores::TensorUse& use, const Site& at);
    void look_for_order(const tensor_cores::TensorUse& use, const Site& at);
    void look_for_order(const tensor_cores::TensorUse& use,
                        const tensor_cores::SharedMatrix& matrix, bool is_b, uint32_t first,
                        const OfBlock& of, const Site& at);
    static const char* line_of(const tensor_cores::SharedMatrix& of, uint32_t row);
    static const char* only_place_of(const char* bytes, const Region*& in);
    bool is_fenced(const Touch& before, unsigned thread);
    Finding* say(const char* kind, std::string message, const Site& at, const Site* other = nullptr,
                 const char* other_access = "", unsigned other_thread = 0);

    std::map<std::tuple<uintptr_t, const char*, int, const char*, Kind, Role>, unsigned> known;
    Flights reads, writes;
    std::deque<Work> works;
    uint32_t first_work = 1, open_works = 0;
    std::map<const Block*, OfBlock> blocks;  // of those that are running
    std::set<const Block*> ended;            // of the running cluster
    std::map<const uint64_t*, Mbarrier> mbarriers;
    std::map<uintptr_t, Tile> tiles;
    // How often the order of scale factors was looked for at a product, of A and of B: it is the
    // same for all tiles, and to look for rows in all memory takes time.
    static constexpr int most_order_looks = 1 << 8;
    std::map<std::pair<const Site*, bool>, int> order_looks;
    uint64_t random = 0;
    uint32_t tensor_time = 1;
};

}  // namespace
}  // namespace simulator
