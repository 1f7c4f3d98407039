// What is wrong, where, and how often.
#pragma once
#include <string.h>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>
#include "traffic.h"

namespace simulator {
namespace {

// What is asynchronous touches memory twice: when it is asked for, for from then on it may, and
// when it has been waited for, which is when others may rely on it.
enum class Role : uint8_t { Thread, Asked, Done };

struct Site {
    uintptr_t pc;
    unsigned id;
    Kind kind;
    Role role = Role::Thread;
    const char *what = "", *file = "";  // of an instruction that tells of itself
    int line = 0;
    unsigned issuer = 0;       // who asked for it last
    bool counts = true;        // its requests are those of a warp
    bool is_by_proxy = false;  // not as a thread's own accesses are: see proxies.h
    unsigned size = 0;         // of its last access; what is larger comes in pieces
    Region* region = nullptr;  // where its last request went
    std::vector<Traffic> traffic;

    Scope scope = Scope::Device;  // of an atomic
    // Of a volatile access: a thread asks for the same again and again, or sets what others wait
    // for, after a fence: other threads of its block, or those of other blocks too, which know of
    // fences before a barrier. Or it is made while the thread holds a lock, or gives one back. Of a
    // plain read: what was read is then a guess for an atomicCAS there.
    bool waits = false, tells = false, tells_blocks = false, guesses = false;
    bool is_locked = false, unlocks = false;
    bool uses_old = false;  // of an atomicExch: its value is used

    bool signals(bool is_in_block) const {
        return !is_locked && (waits || (is_in_block ? tells : tells_blocks));
    }

    // While the requests of lanes that do not run in step are put together.
    std::vector<Request> open;
    unsigned passed = 0, passing = 0;  // how often, and by which thread

    Traffic& traffic_to(Region* region) {
        for (Traffic& it : traffic)
            if (it.region == region) return it;
        traffic.push_back({region});
        return traffic.back();
    }
};

// Where an access or a failure happened. `site` is null where only file and line are known.
struct Place {
    const char* access = "";
    const Site* site = nullptr;
    std::string file;
    int line = 0;
    uint32_t block = 0;  // its serial number
    unsigned thread = 0;
};

// An error is wrong; of a note the reader is to judge whether it is.
enum class Severity : uint8_t { Error, Note };
constexpr const char* severity_names[] = {"error", "note"};

struct Finding {
    const char* kind;
    std::string message;
    Place place, other;
    unsigned launch;
    uintptr_t address = 0;
    unsigned size = 0;
    const Region* region = nullptr;
    Severity severity = Severity::Error;
    const char* hazard = "";  // of a race: "read after write" and so on
    unsigned column = 0;      // of a wrong index, where its bracket closes
    uint64_t count = 1;
    bool is_certain = false;  // of a read of what nobody has written: neither has anybody later
    // Of such a read of shared memory: whether what a launch leaves depends on it, and the last
    // launch with such a read.
    enum Use : uint8_t { Unknown, Unused, Used } use = Unknown;
    unsigned read_in = ~0u;
    Callers from = {}, other_from = {};  // of the host, where it is to blame

    bool is(const char* other_kind) const { return !strcmp(kind, other_kind); }
};

// The first of each sort, or the first that is an error, with how many there were.
class Findings {
  public:
    std::deque<Finding> all;

    Finding& add(Finding finding) {
        const Place &place = finding.place, &other = finding.other;
        const void* const by = finding.from.empty() ? nullptr : finding.from.back();
        Finding*& found = known[{
            finding.kind, place.site, other.site, finding.region, place.line, other.line, by}];
        if (found) {
            finding.count += found->count;
            if (finding.severity < found->severity)
                *found = std::move(finding);
            else
                found->count = finding.count;
        } else {
            all.push_back(std::move(finding));
            found = &all.back();
        }
        return *found;
    }

    // That is not for the reader to judge, as an index within a row may be.
    bool has_error() const {
        return std::any_of(all.begin(), all.end(), [](const Finding& it) {
            return it.severity == Severity::Error && !it.is("index") && it.use != Finding::Unused;
        });
    }
    // If all that is wrong are reads in this launch of unset shared memory: those.
    std::vector<Finding*> unset_reads_alone(unsigned launch) {
        std::vector<Finding*> found;
        for (Finding& it : all) {
            if (it.severity != Severity::Error || it.is("index") || it.use == Finding::Unused)
                continue;
            if (it.use == Finding::Used || it.read_in != launch) return {};
            found.push_back(&it);
        }
        return found;
    }
    bool has(std::initializer_list<const char*> kinds) const {
        for (const Finding& finding : all)
            for (const char* kind : kinds)
                if (finding.is(kind)) return true;
        return false;
    }

    // What was read before a racing thread wrote it: the race is the news, and where a copy was
    // waited for in the wrong phase, that is; and what comes of an mbarrier that nobody has
    // initialised yet. And races that are none, as only later accesses
    // have shown: of flags, and of guesses that an atomicCAS confirms.
    void drop_explained() {
        const auto same = [](const Site* a, const Site* b) { return a && b && a->pc == b->pc; };
        const bool unseen = has({"mbarrier not visible"});
        const auto is_no_race = [](const Site* one, const Site* other, bool is_in_block) {
            return (is_volatile(one->kind) && is_strong(other->kind) &&
                    (one->signals(is_in_block) || one->unlocks)) ||
                   (one->guesses && is_strong(other->kind));
        };
        const auto is_explained = [&](const Finding& it) {
            if (it.use == Finding::Unused) return true;
            const bool is_in_block = it.place.block == it.other.block;
            // What comes of a barrier that does not order the threads of a block.
            for (const Finding& barrier : all)
                if (barrier.is("divergent barrier") && barrier.severity == Severity::Error &&
                    barrier.launch == it.launch &&
                    ((it.is("race") && is_in_block) ||
                     (it.is("uninitialised") && it.region && it.region->is_shared())))
                    return true;
            if (it.is("race") && it.place.site && it.other.site &&
                (is_no_race(it.place.site, it.other.site, is_in_block) ||
                 is_no_race(it.other.site, it.place.site, is_in_block)))
                return true;
            const bool is_of_word = it.size == sizeof(uint64_t) && it.place.site;
            if (unseen && (it.is("deadlock") || (is_of_word && it.is("uninitialised")) ||
                           (is_of_word && it.is("out of bounds") && !it.region)))
                return true;
            for (const Finding& other : all)  // what the host reads says more than its copy
                if (it.is("unwritten") && !it.from.empty() && other.is("uninitialised") &&
                    other.region == it.region && !other.message.empty())
                    return true;
            for (const Finding& other : all)  // who has ended comes of that, or leads to it
                if (it.message == "ended" && other.is(it.kind) && other.launch == it.launch &&
                    other.severity == Severity::Error)
                    return true;
            for (const Finding& parity : all)
                if (it.is("asynchronous race") && parity.is("wrong parity") &&
                    parity.region == it.region && same(parity.place.site, it.place.site))
                    return true;
            for (const Finding& race : all)
                if (it.is("uninitialised") && !it.is_certain &&
                    (race.is("race") || race.is("asynchronous race")) && race.region == it.region &&
                    (same(race.place.site, it.place.site) || same(race.other.site, it.place.site)))
                    return true;
            return false;
        };
        all.erase(std::remove_if(all.begin(), all.end(), is_explained), all.end());
        known.clear();
    }

  private:
    std::map<
        std::tuple<const char*, const Site*, const Site*, const Region*, int, int, const void*>,
        Finding*>
        known;
};

}  // namespace
}  // namespace simulator
