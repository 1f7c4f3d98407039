// Every tensor that PyTorch allocates on the CPU, told to the checker.
//
// Each has room to spare on both sides, so that an access past its end is seen as that, and hurts
// nobody.
#include <c10/core/CPUAllocator.h>
#include <stdlib.h>

extern "C" {
// Of the simulator (simulator/checker/report.h).
void* simulator_check_take(size_t bytes);
bool simulator_check_give_back(void* memory);
void simulator_check_allocated(uintptr_t begin, size_t bytes, size_t pad);
bool simulator_check_freed(uintptr_t begin, void* memory);
}

namespace {

constexpr size_t kPad = 1 << 14;

void release(void* tensor) {
    char* const memory = static_cast<char*>(tensor) - kPad;
    if (simulator_check_freed(reinterpret_cast<uintptr_t>(tensor), memory)) return;
    if (!simulator_check_give_back(tensor)) free(memory);
}

struct Watched final : c10::Allocator {
    c10::DataPtr allocate(size_t bytes) override {
        void *memory = nullptr, *tensor = bytes ? simulator_check_take(bytes) : nullptr;
        if (!tensor) {
            if (posix_memalign(&memory, 64, kPad + bytes + kPad)) throw std::bad_alloc();
            tensor = static_cast<char*>(memory) + kPad;
        }
        if (bytes) simulator_check_allocated(reinterpret_cast<uintptr_t>(tensor), bytes, kPad);
        return {tensor, tensor, release, c10::DeviceType::CPU};
    }
    c10::DeleterFnPtr raw_deleter() const override { return release; }
    void copy_data(void* to, const void* from, size_t bytes) const override {
        default_copy_data(to, from, bytes);
    }
};

Watched watched;
c10::Allocator* before = nullptr;

}  // namespace

extern "C" int pad() { return kPad; }

extern "C" void watch() {
    if (before) return;
    before = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&watched);
}

extern "C" void unwatch() {
    if (before) c10::SetCPUAllocator(before);
    before = nullptr;
}
