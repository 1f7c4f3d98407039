// Constants of which lab.tune tries other values.
//
//     constexpr int kThreads = TUNABLE(kThreads, 256);
//
// is 256, unless the compiler is told another value: -DTUNE_kThreads=TUNED(128) makes it 128. The
// values that were best on a GPU stand beside the source, in NAME.tuned.toml (docs/tune.md).
#pragma once

// TUNED(128) leaves an argument free before 128, so that TUNABLE's own value is the third and not
// the second. A name that is not defined is itself the first one.
#define TUNED(value) , value
#define TUNABLE(name, value) TUNABLE_CHOOSE(TUNE_##name, value)
#define TUNABLE_CHOOSE(...) TUNABLE_SECOND(__VA_ARGS__, 0)
#define TUNABLE_SECOND(first, second, ...) second
