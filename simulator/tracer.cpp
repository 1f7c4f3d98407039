// The tracer, which records for lab.trace what the threads of a block do, line by line: a library
// that is opened for kernels that are built for it, after the checker's.
//
// tracer/recording.h says what is recorded, tracer/stepping.h how threads go on line by line, and
// tracer/hooks.h what kernels call.
#define SIMULATOR_EXECUTOR

#include "tracer/recording.h"
#include "tracer/steps.h"
// After those:
#include "tracer/hooks.h"
