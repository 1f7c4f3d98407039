#pragma once
#include "../simulator/cub/util.h"
