"""DeepGEMM's kernels (CUDA, compiled as they are called), by our ops' names and arguments."""

import deep_gemm


def matmul(x, w, bias=None, residual=None, act="none", scale=1.0):
    if bias is not None or residual is not None or act != "none" or scale != 1:
        raise NotImplementedError("DeepGEMM fuses nothing with a product of bfloat16")
    y = x.new_empty(x.shape[0], w.shape[0])
    deep_gemm.bf16_gemm_nt(x, w, y)
    return y
