#pragma once
#include "../../simulator/cub/warp.h"
