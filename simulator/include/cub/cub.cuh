// CUB, as far as the simulator has it.
#pragma once
#include "../simulator/cub/block_sort.h"
#include "../simulator/cub/device.h"
#include "../simulator/cub/traits.h"
#include "../simulator/cub/warp_memory.h"
