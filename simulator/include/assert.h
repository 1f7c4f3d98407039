// assert for host and device. In a kernel it ends the launch with cudaErrorAssert. Like the
// system's header of this name it may be included again, with NDEBUG or without.
#include_next <assert.h>
#if defined(__cplusplus) && !defined(NDEBUG)
#include "simulator/block.h"
#undef assert
#define assert(...)                 \
    (static_cast<bool>(__VA_ARGS__) \
         ? static_cast<void>(0)     \
         : ::simulator::fail_assertion(#__VA_ARGS__, __FILE__, __LINE__))
#endif
