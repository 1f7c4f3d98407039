#pragma once
#include "../../simulator/cub/warp_memory.h"
