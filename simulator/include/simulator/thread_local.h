// Before glibc 2.40 a thread's first access to what is thread_local may lose vector registers,
// where g++ finds it by a descriptor (simulator/__init__.py). A call lets g++ expect that.
#pragma once

#ifdef __clang__  // does without descriptors
#define SIMULATOR_CALL_TO_THREAD_LOCAL
#else
#define SIMULATOR_CALL_TO_THREAD_LOCAL __attribute__((__noipa__))
#endif
