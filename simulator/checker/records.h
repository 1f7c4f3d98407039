// Records of a check: launches, blocks that stood still, and variables.
#pragma once
#include <map>
#include "../executor/watcher.h"

namespace simulator {
namespace {

struct LaunchRecord {
    std::string name, file;
    int line;
    dim3 grid, block;
    size_t shared;
    uint64_t blocks, recorded;
    uint32_t first;      // serial number of its block (0, 0, 0)
    uint64_t ended = 0;  // blocks
    // Of the blocks that were recorded: barriers, shuffles of warps, and tensor cores' operations.
    uint64_t barriers = 0, shuffles = 0;
    std::map<std::string, uint64_t> products = {};
    std::string full_name = {};              // with its template arguments, where they are known
    std::map<uintptr_t, uint64_t> ran = {};  // of Stretches
};

// Where threads of a block stood when the time for the check was over.
struct BlockStood {
    uint3 block;
    std::vector<Standing> threads;
};

// A variable of a library: a shared array, by its offset in the library's thread-local memory, or
// one of the device. `owner`: the function that declares it, if one does; `is_kernels`: whether
// that is a kernel. `name` is empty for a variable of the simulator's.
struct Variable {
    std::string library;
    size_t offset, bytes;
    bool is_shared, is_kernels;
    std::string owner, name;
    cudaMemoryType of;  // Device, or Managed; else the host may use it as it likes
};

}  // namespace
}  // namespace simulator
