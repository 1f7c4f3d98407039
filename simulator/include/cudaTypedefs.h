// The types of pointers to the driver's functions, as far as those are there.
#pragma once
#include "cuda.h"
#include "simulator/tensor_map_encode.h"
