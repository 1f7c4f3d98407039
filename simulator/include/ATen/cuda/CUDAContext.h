#pragma once
#include <ATen/Context.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Logging.h>
#include "CUDAContextLight.h"
#include "Exceptions.h"
