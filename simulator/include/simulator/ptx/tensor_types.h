// What the products of a warp and of a warpgroup are of.
#pragma once
#include "../tensor_cores.h"
#include "values.h"

namespace simulator::ptx {

using tensor_cores::Sum;
using tensor_cores::Type;
using __ptx_Tile = tensor_cores::Tile;
using __ptx_WarpgroupTile = tensor_cores::WarpgroupTile;
SIMULATOR_NAMED(Type, F16)
SIMULATOR_NAMED(Type, BF16)
SIMULATOR_NAMED(Type, TF32)
SIMULATOR_NAMED(Type, E4M3)
SIMULATOR_NAMED(Type, E5M2)
SIMULATOR_NAMED(Type, F64)
SIMULATOR_NAMED(Type, S8)
SIMULATOR_NAMED(Type, U8)
SIMULATOR_NAMED(Type, S4)
SIMULATOR_NAMED(Type, U4)
SIMULATOR_NAMED(Type, B1)
SIMULATOR_NAMED(Type, F32)
SIMULATOR_NAMED(Type, S32)
SIMULATOR_NAMED(Type, E2M3)
SIMULATOR_NAMED(Type, E3M2)
SIMULATOR_NAMED(Type, ByteE2M1)
SIMULATOR_NAMED(Type, E2M1)
SIMULATOR_NAMED(Sum, Exact25)
SIMULATOR_NAMED(Sum, Exact13)
SIMULATOR_NAMED(Sum, TwoHalves)
SIMULATOR_NAMED(Sum, Blackwell)

}  // namespace simulator::ptx
