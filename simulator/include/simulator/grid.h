// Where the blocks of a cooperative grid wait for each other.
#pragma once
#include "barrier.h"

namespace simulator {

// What happens when the last thread of a block has come.
enum GridStep : uint8_t {
    GridArrive = 1,  // the grid is told so
    GridWait = 2,    // the block waits until all others have told so
};

#ifdef __SANITIZE_THREAD__
SIMULATOR_EXPORT void grid_barrier(unsigned steps, const char* what, const char* file, int line);
#else
SIMULATOR_WAIT void grid_barrier(unsigned steps, const char* what, const char* file, int line) {
    if (!current->launch->cooperative)
        fail(
            "the blocks of a grid wait for each other only if cudaLaunchCooperativeKernel has "
            "launched it",
            what, file, line);
    current->grid_steps |= steps;
    barrier(false, what, file, line);
}
#endif

}  // namespace simulator
