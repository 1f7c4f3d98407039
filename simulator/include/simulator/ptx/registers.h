// setmaxnreg: warps that give registers back, and others that take them.
#pragma once
#include "../asynchronous.h"
#include "values.h"

namespace simulator::ptx {

SIMULATOR_INLINE void __ptx_set_registers(unsigned count, bool is_more, SIMULATOR_CALLER) {
    if (count % 8 || count < 24 || count > 256)
        fail("the count is a multiple of 8 from 24 to 256", "setmaxnreg", file, line);
    tell_registers(count, is_more, file, line);
}

}  // namespace simulator::ptx
