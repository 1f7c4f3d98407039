// The stacks on which functions of the host run while Python calls them.
#pragma once
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <utility>
#include <vector>

namespace simulator {
namespace {

// Closed to all access below, where a recursion arrives, and above, where an index past the end of
// a local array does.
struct HostStack {
    static constexpr size_t below = 1 << 20, above = 256 << 20;

    uintptr_t bottom = 0, top = 0;  // 0: the caller's own

    std::pair<const void*, size_t> memory() const {
        return {reinterpret_cast<const void*>(bottom), top - bottom};
    }
    bool is_below(uintptr_t address) const { return top && bottom - address - 1 < below; }
    bool is_above(uintptr_t address) const { return top && address - top < above; }
};

// The stacks of a thread. It has several because a function may call Python, which calls another.
class HostStacks {
  public:
    HostStack at(size_t depth) {
        while (depth >= stacks.size()) stacks.push_back(make());
        return stacks[depth];
    }

    ~HostStacks() {
        const auto here = uintptr_t(__builtin_frame_address(0));
        for (const HostStack& it : stacks)
            if (it.bottom <= here && here < it.top) return;  // one of them calls exit()
        for (const HostStack& it : stacks)
            if (it.top)
                munmap(reinterpret_cast<void*>(it.bottom - HostStack::below), with_guards());
    }

  private:
    // As large as the system's, which it may not limit at all.
    static size_t size() {
        constexpr rlim_t least = 8 << 20, most = 64 << 20;
        static const size_t bytes = [] {
            rlimit limit;
            const bool is_known = !getrlimit(RLIMIT_STACK, &limit);
            const rlim_t wanted = is_known ? limit.rlim_cur : 0;
            return size_t(wanted < least ? least : wanted > most ? most : wanted) / least * least;
        }();
        return bytes;
    }

    static size_t with_guards() { return HostStack::below + size() + HostStack::above; }

    // The caller's own where there is no room.
    static HostStack make() {
        void* const memory = mmap(
            nullptr, with_guards(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return {};
        const uintptr_t bottom = uintptr_t(memory) + HostStack::below;
        if (mprotect(reinterpret_cast<void*>(bottom), size(), PROT_READ | PROT_WRITE)) {
            munmap(memory, with_guards());
            return {};
        }
        return {bottom, bottom + size()};
    }

    std::vector<HostStack> stacks;
};

}  // namespace
}  // namespace simulator
