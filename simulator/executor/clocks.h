// The time that a kernel's clock() tells. A C program's function of this name tells the processor
// time of the process; in a kernel it is the processor's counter, as clock64() is.
#pragma once
#include <time.h>
#include "worker.h"

#ifdef __linux__
extern "C" SIMULATOR_EXPORT clock_t __wrap_clock() {
    if (simulator::worker && simulator::worker->running) {
#ifdef __x86_64__
        return clock_t(__builtin_ia32_rdtsc());
#else
        clock_t ticks;
        asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
#endif
    }
    timespec used;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used)) return -1;
    return clock_t(used.tv_sec) * CLOCKS_PER_SEC + used.tv_nsec / (1000000000 / CLOCKS_PER_SEC);
}
#endif
