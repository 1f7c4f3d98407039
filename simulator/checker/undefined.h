// What a kernel uses though nobody has set it: a local variable that is declared without a value,
// what a shuffle gets from a lane that takes no part, cells of memory that nobody has written, and
// registers of tcgen05.ld before tcgen05.wait::ld.
//
// To read such a value is no mistake yet: it may be copied, or computed with and dropped. So the
// first blocks of a launch run once more, from the same memory and in the same order, with another
// value in place of it. Where the memory is then another one, what the kernel does depends on the
// value. Such bytes are followed to later launches, and told at the end of the check if they are
// still there, in memory that somebody may read. A read of unset shared memory is told where
// it is, unless all blocks ran again and left the same.
//
// C++ may copy registers of tcgen05.ld before the wait, of which nvcc makes no instruction. So each
// gets a value that nothing else has, and the wait puts the right one wherever the thread's stack
// has that: in registers and in their copies, and not in what was computed with them or stored.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>
#include "findings.h"

namespace simulator {
namespace {

class Undefined {
  public:
    bool is_filling = false;  // a variable gets its value, which is no access of the kernel's

    void begin_launch(const Launch& launch, bool may_repeat);
    uint64_t blocks() const { return most_blocks; }
    void repeat(const std::function<bool(uint64_t)>& run);
    void freed(const Region& region);
    void end();

    // The value of a variable, byte by byte.
    unsigned char byte_of(const char* name, const char* file, int line, bool is_structure);
    // A lane reads one that takes no part.
    void note_lane(const Thread& at, unsigned thread, std::string message);
    void look_at_lanes(const Thread& at);
    // tcgen05.ld has given registers of the running thread values, and it has waited for them.
    void note_load(void* const* registers, int count, const Site& at);
    void loads_done(const void* stack_end);

    // While the launch is repeated: it does what it should not, or far more than before. All
    // accesses are counted for that.
    void failed(const Finding& finding);
    bool is_too_long() { return ++accesses > most_accesses; }

  private:
    struct Source {
        enum What : uint8_t { Local, Lane, Cells, Load } what;
        const char *name, *file;
        int line;
        const Region* region = nullptr;
        bool is_seen = false, is_told = false;
        bool is_structure = false;  // whose parts may be copied without a value
        Finding finding{};          // a lane's, a load's, or of a read of cells
    };
    // Bytes of a region that depend on a source; what they are, and what they could be.
    struct Dependent {
        Source* source;
        Region* region;
        size_t offset;
        std::vector<char> bytes, others;
        Place stored;
        unsigned launch;
    };
    struct Kept {
        Region* region;
        std::vector<char> before, start, after;
    };
    // What a register has until it is waited for, and then.
    struct Loaded {
        uint32_t token, value;
    };
    enum class Change { Nothing, Everything, Locals, One };

    Source& source(Source::What what, const char* name, const char* file, int line);
    Source& cells_of(Region& region);
    bool is_chosen(const Source& it) const {
        return change == Change::Everything ||
               (change == Change::Locals && it.what == Source::Local) ||
               (change == Change::One && chosen == &it);
    }
    void keep(std::vector<char> Kept::* what);
    static void restore(const Region& region, const std::vector<char>& bytes);
    void change_memory();
    void change_shared();
    bool differs(const std::function<bool(uint64_t)>& run, Change how, Source* which = nullptr);
    template <class Visit>
    void for_each_difference(const Kept& it, Visit visit) const;
    bool is_copied(const Source& of, const char* now, const char* was, size_t bytes) const;
    void note_differences(Source& of);
    void note_reader(Source& of, Region& region);
    void tell(const Dependent& it);
    void tell(Source& of, const Place& at, unsigned launch, const Region* region,
              uintptr_t address);

    static constexpr size_t most_bytes = 8 << 20;      // of memory, for a launch to be repeated
    static constexpr uint64_t most_threads = 1 << 16;  // that are
    static constexpr size_t most_sources = 16, most_dependents = 1 << 12;
    // Large in each type, and finite; and its negative.
    static constexpr unsigned char large = 0x7a, least = 0xfa;
    static constexpr unsigned char no_number = 0xff;  // which times 0 is not 0
    unsigned char other_byte = large;

    uint64_t most_blocks = 0, accesses = 0, most_accesses = ~uint64_t(0);
    Change change = Change::Nothing;
    const Source* chosen = nullptr;
    bool has_failed = false;
    Finding failure{};
    std::map<unsigned, std::vector<Loaded>> loaded;  // by thread of the running block
    uint32_t tokens = 0;                             // that there have been
    std::deque<Source> sources;
    std::map<std::tuple<Source::What, const void*, const void*, int>, Source*> known;
    std::vector<Kept> kept, kept_shared;
    std::vector<Dependent> dependents;
};

}  // namespace
}  // namespace simulator
