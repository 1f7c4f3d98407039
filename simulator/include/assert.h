// assert for host and device. In a kernel it ends the launch with cudaErrorAssert. Like the
// system's header of this name it may be included again, with NDEBUG or without.
#include_next <assert.h>
#ifndef NDEBUG
#include "simulator/api.h"
#undef assert
#define assert(condition)                                                             \
    ((condition) ? static_cast<void>(0)                                               \
     : ::simulator::in_kernel()                                                       \
         ? ::simulator::trap(cudaErrorAssert, ::simulator::here.rank,                 \
                             "Assertion `" #condition "' failed", __FILE__, __LINE__) \
         : __assert_fail(#condition, __FILE__, __LINE__, __func__))
#endif
