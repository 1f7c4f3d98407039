// The checker, which watches launches for lab.check: a library that is opened for kernels that are
// instrumented, and by the lab.
//
// checker/recorder.h says what it sees of them, through executor/watcher.h.
#define SIMULATOR_CHECKER

#include "checker/accesses.h"
#include "checker/bounds.h"
#include "checker/copies.h"
#include "checker/copy_conflicts.h"
#include "checker/declared_types.h"
#include "checker/hooks.h"
#include "checker/host.h"
#include "checker/inspection.h"
#include "checker/lock_faults.h"
#include "checker/mbarriers.h"
#include "checker/products.h"
#include "checker/proxies.h"
#include "checker/repeats.h"
#include "checker/report.h"
#include "checker/requests.h"
#include "checker/scale_factors.h"
#include "checker/tensor_maps.h"
#include "checker/tensor_memory.h"
#include "checker/unset_reads.h"
#include "checker/watching.h"
