#pragma once
#include "../simulator/cub/traits.h"
