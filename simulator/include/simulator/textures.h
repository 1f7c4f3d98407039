// Textures, surfaces and the CUDA arrays that they read, of one to three dimensions, layered and
// cubes; there are no mipmaps. The rewriter includes this where a source speaks of them. How a
// texture is sampled: executor/textures.h.
#pragma once
#include <stdint.h>
#include "../cuda_runtime.h"

typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;

enum cudaResourceType {
    cudaResourceTypeArray,
    cudaResourceTypeMipmappedArray,
    cudaResourceTypeLinear,
    cudaResourceTypePitch2D,
};

enum cudaTextureAddressMode {
    cudaAddressModeWrap,
    cudaAddressModeClamp,
    cudaAddressModeMirror,
    cudaAddressModeBorder,
};

enum cudaTextureFilterMode { cudaFilterModePoint, cudaFilterModeLinear };
enum cudaTextureReadMode { cudaReadModeElementType, cudaReadModeNormalizedFloat };
enum cudaSurfaceBoundaryMode { cudaBoundaryModeZero, cudaBoundaryModeClamp, cudaBoundaryModeTrap };

struct cudaResourceDesc {
    enum cudaResourceType resType;
    union {
        struct {
            cudaArray_t array;
        } array;
        struct {
            void* devPtr;
            cudaChannelFormatDesc desc;
            size_t sizeInBytes;
        } linear;
        struct {
            void* devPtr;
            cudaChannelFormatDesc desc;
            size_t width, height, pitchInBytes;
        } pitch2D;
    } res;
    unsigned flags;
};

struct cudaResourceViewDesc;

struct cudaTextureDesc {
    enum cudaTextureAddressMode addressMode[3];
    enum cudaTextureFilterMode filterMode;
    enum cudaTextureReadMode readMode;
    int sRGB;
    float borderColor[4];
    int normalizedCoords;
    unsigned maxAnisotropy;
    enum cudaTextureFilterMode mipmapFilterMode;
    float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
    int disableTrilinearOptimization, seamlessCubemap;
};

namespace simulator {

// What is fetched: of each channel a float's or an int's bits.
struct Texel {
    uint32_t channels[4];
};

#pragma GCC visibility push(default)
Texel fetch_texel(cudaTextureObject_t texture, int index);
Texel sample(cudaTextureObject_t texture, unsigned dimensions, float x, float y, float z,
             int layer);
Texel sample_cube(cudaTextureObject_t texture, float x, float y, float z, int layer);
Texel gather_texels(cudaTextureObject_t texture, float x, float y, int channel);
void read_surface(void* to, size_t bytes, cudaSurfaceObject_t surface, int x, int y, int z,
                  cudaSurfaceBoundaryMode mode);
void write_surface(const void* from, size_t bytes, cudaSurfaceObject_t surface, int x, int y, int z,
                   cudaSurfaceBoundaryMode mode);
#pragma GCC visibility pop

// A texel's type: so many channels of one type.
template <class T>
struct Channels {
    using Type = T;
    static constexpr int count = 1;
};
#define SIMULATOR_CHANNELS(T, name)     \
    template <>                         \
    struct Channels<name##1> {          \
        using Type = T;                 \
        static constexpr int count = 1; \
    };                                  \
    template <>                         \
    struct Channels<name##2> {          \
        using Type = T;                 \
        static constexpr int count = 2; \
    };                                  \
    template <>                         \
    struct Channels<name##4> {          \
        using Type = T;                 \
        static constexpr int count = 4; \
    };
SIMULATOR_CHANNELS(signed char, char)
SIMULATOR_CHANNELS(unsigned char, uchar)
SIMULATOR_CHANNELS(short, short)
SIMULATOR_CHANNELS(unsigned short, ushort)
SIMULATOR_CHANNELS(int, int)
SIMULATOR_CHANNELS(unsigned, uint)
SIMULATOR_CHANNELS(float, float)
#undef SIMULATOR_CHANNELS

template <class T>
constexpr bool is_float = __is_same(T, float);

template <class T>
T as(const Texel& texel) {
    using Channel = typename Channels<T>::Type;
    static_assert(is_float<Channel> || sizeof(Channel) <= 4, "a texel's channels have 32 bits");
    T value;
    Channel* channels = reinterpret_cast<Channel*>(&value);
    for (int i = 0; i < Channels<T>::count; i++)
        if constexpr (is_float<Channel>)
            __builtin_memcpy(&channels[i], &texel.channels[i], 4);
        else
            channels[i] = Channel(texel.channels[i]);
    return value;
}

template <class T>
cudaChannelFormatDesc format_of() {
    using Channel = typename Channels<T>::Type;
    constexpr int bits = 8 * sizeof(Channel), count = Channels<T>::count;
    return {bits, count > 1 ? bits : 0, count > 2 ? bits : 0, count > 3 ? bits : 0,
            is_float<Channel>          ? cudaChannelFormatKindFloat
            : Channel(-1) < Channel(0) ? cudaChannelFormatKindSigned
                                       : cudaChannelFormatKindUnsigned};
}

namespace api {
#pragma GCC visibility push(default)

cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* format, size_t width,
                            size_t height = 0, unsigned flags = 0);
cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* format,
                              cudaExtent extent, unsigned flags = 0);
cudaError_t cudaFreeArray(cudaArray_t array);
cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* format, cudaExtent* extent, unsigned* flags,
                             cudaArray_t array);
cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* format, cudaArray_const_t array);

// Offsets and widths are in bytes, and rows.
cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t bytes,
                              cudaMemcpyKind kind);
cudaError_t cudaMemcpyFromArray(void* to, cudaArray_const_t from, size_t x, size_t y, size_t bytes,
                                cudaMemcpyKind kind);
cudaError_t cudaMemcpyToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from,
                                   size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream = nullptr);
cudaError_t cudaMemcpyFromArrayAsync(void* to, cudaArray_const_t from, size_t x, size_t y,
                                     size_t bytes, cudaMemcpyKind kind,
                                     cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch,
                                size_t width, size_t height, cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from,
                                     size_t pitch, size_t width, size_t height, cudaMemcpyKind kind,
                                     cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2DFromArray(void* to, size_t pitch, cudaArray_const_t from, size_t x,
                                  size_t y, size_t width, size_t height, cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DFromArrayAsync(void* to, size_t pitch, cudaArray_const_t from, size_t x,
                                       size_t y, size_t width, size_t height, cudaMemcpyKind kind,
                                       cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2DArrayToArray(
    cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from, size_t from_x, size_t from_y,
    size_t width, size_t height, cudaMemcpyKind kind = cudaMemcpyDeviceToDevice);

cudaError_t cudaCreateTextureObject(cudaTextureObject_t* texture, const cudaResourceDesc* resource,
                                    const cudaTextureDesc* how, const cudaResourceViewDesc* view);
cudaError_t cudaDestroyTextureObject(cudaTextureObject_t texture);
cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* resource,
                                             cudaTextureObject_t texture);
cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* how, cudaTextureObject_t texture);
cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* surface, const cudaResourceDesc* resource);
cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t surface);

#pragma GCC visibility pop

inline cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                   cudaChannelFormatKind kind) {
    return {x, y, z, w, kind};
}
template <class T>
cudaChannelFormatDesc cudaCreateChannelDesc() {
    return format_of<T>();
}

}  // namespace api
}  // namespace simulator

// ---- What kernels call: each returns a texel, or stores it through a pointer that comes first

#define SIMULATOR_FETCH(name, call, ...)                         \
    template <class T>                                           \
    T name(cudaTextureObject_t texture, __VA_ARGS__) {           \
        return ::simulator::as<T>(call);                         \
    }                                                            \
    template <class T>                                           \
    void name(T* to, cudaTextureObject_t texture, __VA_ARGS__) { \
        *to = ::simulator::as<T>(call);                          \
    }
SIMULATOR_FETCH(tex1Dfetch, ::simulator::fetch_texel(texture, x), int x)
SIMULATOR_FETCH(tex1D, ::simulator::sample(texture, 1, x, 0, 0, 0), float x)
SIMULATOR_FETCH(tex2D, ::simulator::sample(texture, 2, x, y, 0, 0), float x, float y)
SIMULATOR_FETCH(tex3D, ::simulator::sample(texture, 3, x, y, z, 0), float x, float y, float z)
SIMULATOR_FETCH(tex1DLayered, ::simulator::sample(texture, 1, x, 0, 0, layer), float x, int layer)
SIMULATOR_FETCH(tex2DLayered, ::simulator::sample(texture, 2, x, y, 0, layer), float x, float y,
                int layer)
SIMULATOR_FETCH(texCubemap, ::simulator::sample_cube(texture, x, y, z, 0), float x, float y,
                float z)
SIMULATOR_FETCH(texCubemapLayered, ::simulator::sample_cube(texture, x, y, z, layer), float x,
                float y, float z, int layer)
SIMULATOR_FETCH(tex2Dgather, ::simulator::gather_texels(texture, x, y, channel), float x, float y,
                int channel = 0)
// There is one level.
SIMULATOR_FETCH(tex1DLod, ::simulator::sample(texture, 1, x, 0, 0, 0), float x, float)
SIMULATOR_FETCH(tex2DLod, ::simulator::sample(texture, 2, x, y, 0, 0), float x, float y, float)
SIMULATOR_FETCH(tex3DLod, ::simulator::sample(texture, 3, x, y, z, 0), float x, float y, float z,
                float)
#undef SIMULATOR_FETCH

// x counts bytes.
#define SIMULATOR_SURFACE(name, at, ...)                                                  \
    template <class T>                                                                    \
    T name##read(cudaSurfaceObject_t surface, __VA_ARGS__,                                \
                 cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                   \
        T value;                                                                          \
        ::simulator::read_surface(&value, sizeof value, surface, SIMULATOR_AT at, mode);  \
        return value;                                                                     \
    }                                                                                     \
    template <class T>                                                                    \
    void name##read(T* to, cudaSurfaceObject_t surface, __VA_ARGS__,                      \
                    cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                \
        ::simulator::read_surface(to, sizeof *to, surface, SIMULATOR_AT at, mode);        \
    }                                                                                     \
    template <class T>                                                                    \
    void name##write(T value, cudaSurfaceObject_t surface, __VA_ARGS__,                   \
                     cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {               \
        ::simulator::write_surface(&value, sizeof value, surface, SIMULATOR_AT at, mode); \
    }
#define SIMULATOR_AT(x, y, z) x, y, z
SIMULATOR_SURFACE(surf1D, (x, 0, 0), int x)
SIMULATOR_SURFACE(surf2D, (x, y, 0), int x, int y)
SIMULATOR_SURFACE(surf3D, (x, y, z), int x, int y, int z)
SIMULATOR_SURFACE(surf1DLayered, (x, 0, layer), int x, int layer)
SIMULATOR_SURFACE(surf2DLayered, (x, y, layer), int x, int y, int layer)
#undef SIMULATOR_AT
#undef SIMULATOR_SURFACE
