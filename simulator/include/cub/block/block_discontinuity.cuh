#pragma once
#include "../../simulator/cub/block.h"
