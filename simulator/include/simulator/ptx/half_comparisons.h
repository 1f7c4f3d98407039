// Comparisons of f16 and bf16.
#pragma once
#include "comparisons.h"
#include "half_types.h"
