// The simulator's runtime: what runs kernels. One copy serves the whole process, and kernels are
// compiled without it.
//
// To read it: include/simulator/block.h says how a block of threads runs, include/simulator/fiber.h
// how a thread leaves its stack for another, executor/worker.h who waits for whom, executor/pool.h
// who runs which block, and executor/interrupts.h what ends a launch before its time. The checker
// is a library of its own, checker.cpp, of which it knows executor/watcher.h alone.
#define SIMULATOR_EXECUTOR

// What kernels under check call, and others have inlined: waiting for each other.
#include "include/simulator/cuda/parking.h"
#include "include/simulator/grid.h"
#include "include/simulator/named_barriers.h"
#include "include/simulator/tile.h"

#include "executor/async_copies.h"
#include "executor/barriers.h"
#include "executor/bulk_copies.h"
#include "executor/clocks.h"
#include "executor/copies.h"
#include "executor/deadlocks.h"
#include "executor/graph_calls.h"
#include "executor/host_calls.h"
#include "executor/host_memory.h"
#include "executor/launch_ex.h"
#include "executor/launches.h"
#include "executor/named_barriers.h"
#include "executor/parking.h"
#include "executor/pool_launches.h"
#include "executor/pools.h"
#include "executor/process_ends.h"
#include "executor/streams.h"
#include "executor/textures.h"
#include "executor/virtual_memory.h"
