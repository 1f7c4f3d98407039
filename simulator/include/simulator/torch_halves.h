// The types of CUDA that PyTorch's headers bring with them where nvcc compiles, which they do not
// see here.
#pragma once
#ifdef SIMULATOR_CUDACC
#include "../cuda_bf16.h"
#include "../cuda_fp16.h"
#endif
