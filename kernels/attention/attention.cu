// attention: y = softmax(q k^T * scale) v, over the keys that each row of q sees
//
//   q, y [batches, heads, rows, cols] T                g, dq: the gradients of y and of q
//   k, v [kv_batches, kv_heads, keys, cols] T          dk, dv: theirs
//   stats [batches, heads, rows, 2] Acc<T>             for backward: the largest score, and the sum
//                                                      of e^(score - largest)
//
// score[r, n] = scale * sum over c of q[r, c] * k[n, c]. Row r sees the keys n from
// r + keys - rows - left to r + keys - rows + right (the last row sees the last key), and all if
// there are no such limits; causal is right = 0. A row that sees none has y = 0 and no gradient.
//
// Arithmetic: each score takes 2 * cols operations, and so does its part of y: 4 * rows * keys *
// cols for a head, half of that if it is causal. Backward computes the scores again and has four
// products more: 10 * rows * keys * cols. With p[r, n] = e^(score - largest) / sum, of row r's
// stats (their LSE, largest + log(sum), would be one number, but its rounding would show in every p
// of float32),
//
//   dv = p^T g     dp = g v^T     ds = p * (dp - delta) * scale     dq = ds k     dk = ds^T q
//
// and delta[r] = sum over n of p * dp, which is the sum over c of g[r, c] * y[r, c].
//
// Traffic, the least a kernel can move: q, k, v, y once. The scores of 4096 rows and keys are 32
// MiB a head in bfloat16, beside 2 MiB for all of q, k, v and y: so they never leave the chip, but
// in the naive version.

#include "attention_launch.cuh"

// ---- naive: the formula, in three kernels; online: one pass over tiles of keys. Both are in
// attention_tiles.cuh and attention_online.cuh, each with the flaw that is left.
//
// ---- mma: the same on tensor cores, whose accumulators are the operands of the next products.
// Takes 16-bit floats, up to 256 columns, a multiple of 8. Backward is its own from here on: one
// kernel for dq, and one for dk and dv. Flaw: on Hopper, mma.sync reaches a third of the tensor
// cores' speed, and each warp copies and reads every tile for itself.
//
// ---- wgmma: warp specialization. A producer warpgroup fills a pipeline of stages by TMA, from
// which wgmma reads; consumer warpgroups run in ping-pong. Flaw: the products of a warpgroup wait
// for its softmax.
//
// ---- overlap: the scores of the next tile are multiplied during the softmax of this one. Backward
// is one fused kernel with five products up to 128 columns.
// Flaw: above 128 columns backward computes the scores twice (docs/attention.md).

#define INSTANTIATE(T) INSTANTIATE_ATTENTION(T, Attention)
FOR_EACH_TYPE(INSTANTIATE)
