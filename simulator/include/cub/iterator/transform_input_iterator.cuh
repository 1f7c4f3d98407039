#pragma once
#include "../../simulator/cub/iterators.h"
