#pragma once
#include "../../simulator/cub/device.h"
