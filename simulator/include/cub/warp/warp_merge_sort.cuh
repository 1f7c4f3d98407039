#pragma once
#include "../../simulator/cub/block_sort.h"
