// The simulator's runtime: what runs kernels, and what watches them. One copy serves the whole
// process, and kernels are compiled without it.
//
// To read it: include/simulator/block.h says how a block of threads runs, include/simulator/fiber.h
// how a thread leaves its stack for another, executor/worker.h who waits for whom, executor/pool.h
// who runs which block, executor/interrupts.h what ends a launch before its time, and
// checker/recorder.h what the checker sees of it all, through executor/watcher.h.
#define SIMULATOR_EXECUTOR

// What kernels under check call, and others have inlined: waiting for each other.
#include "include/simulator/cuda/parking.h"
#include "include/simulator/grid.h"
#include "include/simulator/named_barriers.h"
#include "include/simulator/tile.h"

#include "executor/async_copies.h"
#include "executor/bulk_copies.h"
#include "executor/clocks.h"
#include "executor/copies.h"
#include "executor/graphs.h"
#include "executor/launch_ex.h"
#include "executor/launches.h"
#include "executor/named_barriers.h"
#include "executor/parking.h"
#include "executor/pools.h"
#include "executor/streams.h"
#include "executor/textures.h"

#include "checker/bounds.h"
#include "checker/copies.h"
#include "checker/declared_types.h"
#include "checker/hooks.h"
#include "checker/host.h"
#include "checker/inspection.h"
#include "checker/mbarriers.h"
#include "checker/products.h"
#include "checker/proxies.h"
#include "checker/repeats.h"
#include "checker/report.h"
#include "checker/tensor_maps.h"
#include "checker/watching.h"
