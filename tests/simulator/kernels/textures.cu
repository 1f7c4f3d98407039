// Textures and surfaces: what each way of reading gives at the coordinates that the test names.
#include <cuda_runtime.h>

__global__ void sample1(cudaTextureObject_t texture, const float* x, float* y, int n) {
    const int i = threadIdx.x;
    if (i < n) y[i] = tex1D<float>(texture, x[i]);
}

__global__ void sample2(cudaTextureObject_t texture, const float* x, float* y, int n) {
    const int i = threadIdx.x;
    if (i < n) y[i] = tex2D<float>(texture, x[2 * i], x[2 * i + 1]);
}

// y = the texture of these 8-bit or float texels (width by height) at n points.
template <class T>
static cudaError_t sample(const T* texels, int width, int height, const float* x, float* y, int n,
                          int address, int filter, int normalized) {
    cudaArray_t array;
    cudaTextureObject_t texture = 0;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<T>();
    const size_t row = width * sizeof(T);
    if (cudaError_t error = cudaMallocArray(&array, &format, width, height)) return error;
    cudaError_t error =
        height ? cudaMemcpy2DToArray(array, 0, 0, texels, row, row, height, cudaMemcpyDefault)
               : cudaMemcpy2DToArray(array, 0, 0, texels, row, row, 1, cudaMemcpyDefault);
    if (error) return error;
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = cudaTextureAddressMode(address);
    how.filterMode = filter ? cudaFilterModeLinear : cudaFilterModePoint;
    how.readMode = sizeof(T) == 1 ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
    how.normalizedCoords = normalized;
    if (cudaError_t error = cudaCreateTextureObject(&texture, &resource, &how, nullptr))
        return error;
    if (height)
        sample2<<<1, 256>>>(texture, x, y, n);
    else
        sample1<<<1, 256>>>(texture, x, y, n);
    if (cudaError_t error = cudaDeviceSynchronize()) return error;
    if (cudaError_t error = cudaDestroyTextureObject(texture)) return error;
    return cudaFreeArray(array);
}

extern "C" cudaError_t run_floats(const float* texels, int width, int height, const float* x,
                                  float* y, int n, int address, int filter, int normalized) {
    return sample(texels, width, height, x, y, n, address, filter, normalized);
}

extern "C" cudaError_t run_bytes(const unsigned char* texels, int width, int height, const float* x,
                                 float* y, int n, int address, int filter, int normalized) {
    return sample(texels, width, height, x, y, n, address, filter, normalized);
}

__global__ void fetch(cudaTextureObject_t ints, cudaTextureObject_t plane, int* y) {
    const int i = threadIdx.x;
    y[i] = tex1Dfetch<int>(ints, i - 1);
    const uchar4 texel = tex2D<uchar4>(plane, i % 3 + 0.5f, i / 3 + 0.5f);
    y[8 + i] = texel.x + 256 * texel.w;
}

// 6 ints of linear memory; 3 x 2 texels of 4 bytes in pitched memory, whose bytes count up.
extern "C" cudaError_t run_memory(const int* ints, int* y) {
    cudaTextureObject_t linear, plane;
    unsigned char *pitched, bytes[24];
    size_t pitch;
    for (int i = 0; i < 24; i++) bytes[i] = i;
    if (cudaError_t error = cudaMallocPitch(&pitched, &pitch, 12, 2)) return error;
    if (cudaError_t error = cudaMemcpy2D(pitched, pitch, bytes, 12, 12, 2, cudaMemcpyHostToDevice))
        return error;
    cudaResourceDesc resource = {};
    cudaTextureDesc how = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = const_cast<int*>(ints);
    resource.res.linear.desc = cudaCreateChannelDesc<int>();
    resource.res.linear.sizeInBytes = 6 * sizeof(int);
    if (cudaError_t error = cudaCreateTextureObject(&linear, &resource, &how, nullptr))
        return error;
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = pitched;
    resource.res.pitch2D.desc = cudaCreateChannelDesc<uchar4>();
    resource.res.pitch2D.width = 3;
    resource.res.pitch2D.height = 2;
    resource.res.pitch2D.pitchInBytes = pitch;
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
    if (cudaError_t error = cudaCreateTextureObject(&plane, &resource, &how, nullptr)) return error;
    fetch<<<1, 8>>>(linear, plane, y);
    if (cudaError_t error = cudaDeviceSynchronize()) return error;
    cudaDestroyTextureObject(linear);
    cudaDestroyTextureObject(plane);
    return cudaFree(pitched);
}

extern "C" int run_unfilterable(const int* ints) {
    cudaTextureObject_t texture;
    cudaResourceDesc resource = {};
    cudaTextureDesc how = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = const_cast<int*>(ints);
    resource.res.linear.desc = cudaCreateChannelDesc<int>();
    resource.res.linear.sizeInBytes = 6 * sizeof(int);
    how.filterMode = cudaFilterModeLinear;
    const cudaError_t error = cudaCreateTextureObject(&texture, &resource, &how, nullptr);
    cudaGetLastError();
    return error;
}

__global__ void draw(cudaSurfaceObject_t surface) {
    const int x = threadIdx.x, y = threadIdx.y;
    surf2Dwrite(short(10 * y + x), surface, x * 2, y);
    if (x == 0) surf2Dwrite<short>(99, surface, -2, y, cudaBoundaryModeZero);  // nowhere
}

__global__ void look(cudaSurfaceObject_t surface, cudaTextureObject_t texture, int* y) {
    const int i = threadIdx.x;
    y[i] = surf2Dread<short>(surface, (i - 1) * 2, 1, cudaBoundaryModeClamp);
    short texel;
    tex2D(&texel, texture, float(i), 2.0f);
    y[8 + i] = texel;
}

// A 4 x 3 array of shorts: drawn as a surface, read as one and as a texture.
extern "C" cudaError_t run_surface(int* y, short* all) {
    cudaArray_t array;
    cudaSurfaceObject_t surface;
    cudaTextureObject_t texture;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<short>();
    if (cudaError_t error = cudaMallocArray(&array, &format, 4, 3, cudaArraySurfaceLoadStore))
        return error;
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeBorder;
    if (cudaError_t error = cudaCreateSurfaceObject(&surface, &resource)) return error;
    if (cudaError_t error = cudaCreateTextureObject(&texture, &resource, &how, nullptr))
        return error;
    draw<<<1, dim3(4, 3)>>>(surface);
    look<<<1, 8>>>(surface, texture, y);
    if (cudaError_t error = cudaDeviceSynchronize()) return error;
    if (cudaError_t error = cudaMemcpy2DFromArray(all, 8, array, 0, 0, 8, 3, cudaMemcpyDefault))
        return error;
    cudaDestroySurfaceObject(surface);
    cudaDestroyTextureObject(texture);
    return cudaFreeArray(array);
}

__global__ void look_around(cudaTextureObject_t volume, cudaTextureObject_t layers,
                            cudaTextureObject_t cube, float* y) {
    const int i = threadIdx.x;
    y[i] = tex3D<float>(volume, 0.5f + i % 2, 0.5f + i / 2 % 2, 1.0f + i / 4);
    y[8 + i] = tex2DLayered<float>(layers, 1.5f, 0.5f, i);
    const float sign = i % 2 ? -1 : 1;
    y[16 + i] = texCubemap<float>(
        cube, i / 2 == 0 ? sign : 0.1f, i / 2 == 1 ? sign : 0.2f,
        i / 2 == 2   ? sign
        : i / 2 == 3 ? 5.0f
                     : 0.3f);
}

// 2 x 2 x 6 floats that count up: as a volume (linear in z), as layers, and as a cube of faces.
extern "C" cudaError_t run_volume(const float* floats, float* y) {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    const unsigned flags[] = {cudaArrayDefault, cudaArrayLayered, cudaArrayCubemap};
    cudaArray_t arrays[3];
    cudaTextureObject_t textures[3];
    for (int i = 0; i < 3; i++) {
        const cudaExtent extent = make_cudaExtent(2, 2, 6);
        if (cudaError_t error = cudaMalloc3DArray(&arrays[i], &format, extent, flags[i]))
            return error;
        cudaMemcpy3DParms copy = {};
        copy.srcPtr = make_cudaPitchedPtr(const_cast<float*>(floats), 8, 2, 2);
        copy.dstArray = arrays[i];
        copy.extent = extent;
        copy.kind = cudaMemcpyDefault;
        if (cudaError_t error = cudaMemcpy3D(&copy)) return error;
        cudaResourceDesc resource = {};
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = arrays[i];
        cudaTextureDesc how = {};
        for (auto& mode : how.addressMode) mode = cudaAddressModeClamp;
        how.filterMode = i == 0 ? cudaFilterModeLinear : cudaFilterModePoint;
        how.normalizedCoords = i == 2;
        if (cudaError_t error = cudaCreateTextureObject(&textures[i], &resource, &how, nullptr))
            return error;
    }
    look_around<<<1, 8>>>(textures[0], textures[1], textures[2], y);
    if (cudaError_t error = cudaDeviceSynchronize()) return error;
    for (int i = 0; i < 3; i++) cudaDestroyTextureObject(textures[i]), cudaFreeArray(arrays[i]);
    return cudaSuccess;
}
