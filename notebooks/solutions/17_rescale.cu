// y = softmax(s) v, for rows of scores s [rows, n] and one column of values v [n], in one pass
//
// While all scores were -infinity there is nothing to shrink, and no difference to take a power of.

__global__ void weighted_mean(const float* s, const float* v, float* y, int rows, int n) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float most = -INFINITY, powers = 0, sum = 0;
    for (int i = 0; i < n; ++i) {
        const float score = s[row * n + i];
        if (score == -INFINITY) continue;
        const float larger = fmaxf(most, score);
        const float factor = expf(most - larger), power = expf(score - larger);
        most = larger;
        powers = powers * factor + power;
        sum = sum * factor + power * v[i];
    }
    y[row] = sum / powers;
}

extern "C" cudaError_t launch(const float* s, const float* v, float* y, int rows, int n,
                              cudaStream_t stream) {
    weighted_mean<<<(rows + 127) / 128, 128, 0, stream>>>(s, v, y, rows, n);
    return cudaGetLastError();
}
