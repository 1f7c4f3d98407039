#pragma once
#include <c10/macros/Export.h>
#include <cuda_runtime.h>
