// Textures, sampled as CUDA documents it, and surfaces. Normalized coordinates are first multiplied
// by the number of texels. The nearest texel is at floor(x). Linear filtering takes the two around
// x - 0.5 on each axis and weighs them by its fraction in 1/256, as the hardware does in 9 bits.
#pragma once
#include <math.h>
#include <string.h>
#include <limits>
#include "copies.h"
#include "worker.h"

namespace simulator {
namespace {

using Read = void (*)(const char* at, int count, uint32_t* channels);

struct Texture {
    static constexpr uint64_t valid = 0x7465787475726573;
    uint64_t mark = valid;
    cudaResourceDesc resource;
    cudaTextureDesc how;
    cudaChannelFormatDesc format;
    size_t texel_bytes;
    Box texels;
    long extent[3];
    long layers = 1;
    bool reads_floats;
    int channels;
    Read read;
};

struct Surface {
    static constexpr uint64_t valid = 0x7375726661636573;
    uint64_t mark = valid;
    cudaArray* array;
};

auto& textures = *new Handles<Texture>;
auto& surfaces = *new Handles<Surface>;

template <class T>
T& use(unsigned long long object, const char* what) {
    T* const it = reinterpret_cast<T*>(object);
    if (!it || it->mark != T::valid) {
        if (!worker || !worker->running) {
            fprintf(stderr, "%s is read outside a kernel, or destroyed\n", what);
            abort();
        }
        worker->fail(cudaErrorIllegalAddress, std::string(what) + " that does not exist");
    }
    return *it;
}

float half_to_float(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                       : exponent     ? ldexpf(1024 + fraction, exponent - 25)
                                      : ldexpf(fraction, -24);
    return bits & 0x8000 ? -size : size;
}

uint32_t bits_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, 4);
    return bits;
}

float as_float(uint32_t bits) {
    float number;
    memcpy(&number, &bits, 4);
    return number;
}

// Reads the channels of a texel, as they are.
template <class T>
void read_channels(const char* at, int count, uint32_t* channels) {
    T values[4];
    memcpy(values, at, count * sizeof(T));
    for (int i = 0; i < count; i++)
        if constexpr (std::is_same_v<T, float>)
            channels[i] = bits_of(values[i]);
        else
            channels[i] = uint32_t(int32_t(values[i]));
}

// As floats, of which the format's integers are fractions: in [0, 1] or [-1, 1].
template <class T>
void read_fractions(const char* at, int count, uint32_t* channels) {
    T values[4];
    memcpy(values, at, count * sizeof(T));
    constexpr float most = std::numeric_limits<T>::max();
    for (int i = 0; i < count; i++) channels[i] = bits_of(std::max(-1.0f, values[i] / most));
}

void read_halves(const char* at, int count, uint32_t* channels) {
    uint16_t values[4];
    memcpy(values, at, count * 2);
    for (int i = 0; i < count; i++) channels[i] = bits_of(half_to_float(values[i]));
}

Read reader_of(const cudaChannelFormatDesc& format, bool as_fractions) {
    const bool is_signed = format.f == cudaChannelFormatKindSigned;
    if (format.f == cudaChannelFormatKindFloat)
        return format.x == 32 ? read_channels<float> : read_halves;
    if (as_fractions && format.x == 8)
        return is_signed ? read_fractions<int8_t> : read_fractions<uint8_t>;
    if (as_fractions) return is_signed ? read_fractions<int16_t> : read_fractions<uint16_t>;
    if (format.x == 8) return is_signed ? read_channels<int8_t> : read_channels<uint8_t>;
    if (format.x == 16) return is_signed ? read_channels<int16_t> : read_channels<uint16_t>;
    return read_channels<int32_t>;
}

int channels_of(const cudaChannelFormatDesc& format) {
    return format.y == 0 ? 1 : format.z == 0 ? 2 : 4;
}

// The texel that index i of an axis means, or -1 for the border.
long resolve(long i, long n, cudaTextureAddressMode mode, bool is_normalized) {
    if (i >= 0 && i < n) return i;
    if (mode == cudaAddressModeBorder) return -1;
    if (is_normalized && mode == cudaAddressModeWrap) return (i % n + n) % n;
    if (is_normalized && mode == cudaAddressModeMirror) {
        const long at = (i % (2 * n) + 2 * n) % (2 * n);
        return at < n ? at : 2 * n - 1 - at;
    }
    return i < 0 ? 0 : n - 1;
}

// On one axis the texels that count, and their weights.
struct Taps {
    long at[2];
    float weight[2];
    int count;
};

// The whole number below. Far outside every texel is the edge's, or the border's: none may
// overflow.
long whole_below(float x) {
    x = x > -1e9f ? x < 1e9f ? x : 1e9f : -1e9f;
    const long i = long(x);
    return i - (x < float(i));
}

Taps taps(const Texture& texture, int axis, float x) {
    const long n = texture.extent[axis];
    const bool is_normalized = texture.how.normalizedCoords;
    const cudaTextureAddressMode mode = texture.how.addressMode[axis];
    if (is_normalized) x *= n;
    if (texture.how.filterMode == cudaFilterModePoint)
        return {{resolve(whole_below(x), n, mode, is_normalized), 0}, {1, 0}, 1};
    x -= 0.5f;
    const long i = whole_below(x);
    const float fraction = int((x - i) * 256 + 0.5f) / 256.0f;
    return {{resolve(i, n, mode, is_normalized), resolve(i + 1, n, mode, is_normalized)},
            {1 - fraction, fraction},
            2};
}

// One texel as it stands, or the border's.
Texel stored(const Texture& texture, long x, long y, long z) {
    Texel texel{};
    if (x >= 0 && y >= 0 && z >= 0) {
        const char* at = texture.texels.row(y, z) + x * texture.texel_bytes;
        texture.read(at, texture.channels, texel.channels);
    } else {
        const float* border = texture.how.borderColor;
        for (int i = 0; i < texture.channels; i++)
            texel.channels[i] =
                texture.reads_floats ? bits_of(border[i]) : uint32_t(int32_t(border[i]));
    }
    return texel;
}

Texel filtered(const Texture& texture, unsigned dimensions, float x, float y, float z, long slice) {
    const Taps none{{0, 0}, {1, 0}, 1};
    // A GPU reads one dimension at 0 of a second one: where that has a border, half of it is read.
    const bool is_row = dimensions == 1 && texture.how.addressMode[1] != cudaAddressModeBorder;
    const Taps xs = taps(texture, 0, x), ys = is_row ? none : taps(texture, 1, y);
    Taps zs = dimensions > 2 ? taps(texture, 2, z) : none;
    if (dimensions < 3) zs.at[0] = slice;
    if (texture.how.filterMode == cudaFilterModePoint)
        return stored(texture, xs.at[0], ys.at[0], zs.at[0]);
    float sums[4] = {};
    for (int k = 0; k < zs.count; k++)
        for (int j = 0; j < ys.count; j++)
            for (int i = 0; i < xs.count; i++) {
                const float weight = xs.weight[i] * ys.weight[j] * zs.weight[k];
                if (weight == 0) continue;
                const Texel texel = stored(texture, xs.at[i], ys.at[j], zs.at[k]);
                for (int c = 0; c < texture.channels; c++)
                    sums[c] += weight * as_float(texel.channels[c]);
            }
    return {{bits_of(sums[0]), bits_of(sums[1]), bits_of(sums[2]), bits_of(sums[3])}};
}

long clamp_layer(const Texture& texture, int layer) {
    return std::min(std::max<long>(layer, 0), texture.layers - 1);
}

}  // namespace

Texel fetch_texel(cudaTextureObject_t object, int index) {
    const Texture& texture = use<Texture>(object, "a texture");
    return index < 0 || index >= texture.extent[0] ? Texel{} : stored(texture, index, 0, 0);
}

Texel sample(cudaTextureObject_t object, unsigned dimensions, float x, float y, float z,
             int layer) {
    const Texture& texture = use<Texture>(object, "a texture");
    return filtered(texture, dimensions, x, y, z, clamp_layer(texture, layer));
}

// The face is that of the longest axis; the other two are its coordinates.
Texel sample_cube(cudaTextureObject_t object, float x, float y, float z, int layer) {
    const Texture& texture = use<Texture>(object, "a texture");
    const float ax = fabsf(x), ay = fabsf(y), az = fabsf(z);
    long face;
    float longest, s, t;
    if (ax >= ay && ax >= az)
        face = x < 0, longest = ax, s = x < 0 ? z : -z, t = -y;
    else if (ay >= az)
        face = 2 + (y < 0), longest = ay, s = x, t = y < 0 ? -z : z;
    else
        face = 4 + (z < 0), longest = az, s = z < 0 ? -x : x, t = -y;
    return filtered(texture, 2, (s / longest + 1) / 2, (t / longest + 1) / 2, 0,
                    clamp_layer(texture, 6 * layer + face));
}

// One channel of the four texels that linear filtering would take, from the lower left on.
Texel gather_texels(cudaTextureObject_t object, float x, float y, int channel) {
    Texture texture = use<Texture>(object, "a texture");
    texture.how.filterMode = cudaFilterModeLinear;
    const Taps xs = taps(texture, 0, x), ys = taps(texture, 1, y);
    const auto at = [&](int i, int j) {
        return stored(texture, xs.at[i], ys.at[j], 0).channels[channel & 3];
    };
    return {{at(0, 1), at(1, 1), at(1, 0), at(0, 0)}};
}

namespace {

// Where a surface's texel is; null for one that is to be read as 0 and not written.
char* surface_texel(cudaSurfaceObject_t object, size_t bytes, long x, long y, long z,
                    cudaSurfaceBoundaryMode mode) {
    const cudaArray& array = *use<Surface>(object, "a surface").array;
    const long width = array.extent.width * array.texel_bytes();
    const bool is_in = x >= 0 && y >= 0 && z >= 0 && array.holds(x, y, z, bytes, 1, 1);
    if (x % long(bytes) == 0 && is_in) return array.box().row(y, z) + x;
    if (x % long(bytes) == 0 && mode == cudaBoundaryModeZero) return nullptr;
    if (x % long(bytes) == 0 && mode == cudaBoundaryModeClamp)
        return array.box().row(std::clamp<long>(y, 0, array.height() - 1),
                               std::clamp<long>(z, 0, array.depth() - 1)) +
               std::clamp<long>(x, 0, width - bytes);
    worker->fail(
        cudaErrorLaunchFailure,
        text("thread %u: %zu bytes at (%ld, %ld, %ld) of a surface of %ld bytes by %zu by %zu; x "
             "counts bytes",
             worker->rank, bytes, x, y, z, width, array.height(), array.depth()));
}

}  // namespace

void read_surface(void* to, size_t bytes, cudaSurfaceObject_t surface, int x, int y, int z,
                  cudaSurfaceBoundaryMode mode) {
    if (const char* texel = surface_texel(surface, bytes, x, y, z, mode))
        memcpy(to, texel, bytes);
    else
        memset(to, 0, bytes);
}

void write_surface(const void* from, size_t bytes, cudaSurfaceObject_t surface, int x, int y, int z,
                   cudaSurfaceBoundaryMode mode) {
    if (char* texel = surface_texel(surface, bytes, x, y, z, mode)) memcpy(texel, from, bytes);
}

namespace api {

cudaError_t cudaCreateTextureObject(cudaTextureObject_t* object, const cudaResourceDesc* resource,
                                    const cudaTextureDesc* how, const cudaResourceViewDesc* view) {
    if (const cudaError_t error = broken()) return error;
    if (!object || !resource || !how) return record(cudaErrorInvalidValue);
    if (view || how->sRGB) return record(cudaErrorNotSupported);
    auto texture = std::make_unique<Texture>();
    texture->resource = *resource;
    texture->how = *how;
    const auto& array = resource->res.array;
    const auto& linear = resource->res.linear;
    const auto& pitch2D = resource->res.pitch2D;
    switch (resource->resType) {
        case cudaResourceTypeArray: {
            const cudaArray* it = array.array;
            if (!arrays.has(array.array)) return record(cudaErrorInvalidResourceHandle);
            texture->format = it->format;
            texture->texels = it->box();
            texture->extent[0] = it->extent.width;
            texture->extent[1] = it->height();
            texture->extent[2] = texture->layers = it->depth();
            break;
        }
        case cudaResourceTypeLinear:
        case cudaResourceTypePitch2D: {
            const bool is_linear = resource->resType == cudaResourceTypeLinear;
            texture->format = is_linear ? linear.desc : pitch2D.desc;
            const size_t texel = bytes_of(texture->format);
            if (!texel) return record(cudaErrorInvalidChannelDescriptor);
            const size_t width = is_linear ? linear.sizeInBytes / texel : pitch2D.width;
            const size_t height = is_linear ? 1 : pitch2D.height;
            const size_t pitch = is_linear ? linear.sizeInBytes : pitch2D.pitchInBytes;
            texture->texels = box_of(is_linear ? linear.devPtr : pitch2D.devPtr, pitch, height);
            texture->extent[0] = width;
            texture->extent[1] = height;
            texture->extent[2] = 1;
            if (!texture->texels.begin || !width || !height || width * texel > pitch ||
                !holds(texture->texels, {width * texel, height, 1}))
                return record(cudaErrorInvalidValue);
            break;
        }
        default:
            return record(cudaErrorNotSupported);  // mipmaps
    }
    texture->texel_bytes = bytes_of(texture->format);
    const bool is_float = texture->format.f == cudaChannelFormatKindFloat;
    texture->reads_floats = is_float || how->readMode == cudaReadModeNormalizedFloat;
    if (!is_float && texture->reads_floats && texture->format.x == 32)
        return record(cudaErrorInvalidNormSetting);
    if (how->filterMode == cudaFilterModeLinear && !texture->reads_floats)
        return record(cudaErrorInvalidFilterSetting);
    texture->channels = channels_of(texture->format);
    texture->read = reader_of(texture->format, texture->reads_floats);
    *object = reinterpret_cast<cudaTextureObject_t>(textures.add(texture.release()));
    return cudaSuccess;
}

cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object) {
    Texture* const texture = reinterpret_cast<Texture*>(object);
    if (!texture) return cudaSuccess;
    if (!textures.has(texture)) return record(cudaErrorInvalidValue);
    texture->mark = 0;
    textures.destroy(texture);
    return cudaSuccess;
}

cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* resource,
                                             cudaTextureObject_t object) {
    Texture* const texture = reinterpret_cast<Texture*>(object);
    if (!resource || !textures.has(texture)) return record(cudaErrorInvalidValue);
    *resource = texture->resource;
    return cudaSuccess;
}

cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* how, cudaTextureObject_t object) {
    Texture* const texture = reinterpret_cast<Texture*>(object);
    if (!how || !textures.has(texture)) return record(cudaErrorInvalidValue);
    *how = texture->how;
    return cudaSuccess;
}

cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* object, const cudaResourceDesc* resource) {
    if (const cudaError_t error = broken()) return error;
    if (!object || !resource || resource->resType != cudaResourceTypeArray)
        return record(cudaErrorInvalidValue);
    cudaArray* const array = resource->res.array.array;
    if (!arrays.has(array)) return record(cudaErrorInvalidResourceHandle);
    if (!(array->flags & cudaArraySurfaceLoadStore)) return record(cudaErrorInvalidValue);
    *object =
        reinterpret_cast<cudaSurfaceObject_t>(surfaces.add(new Surface{Surface::valid, array}));
    return cudaSuccess;
}

cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t object) {
    Surface* const surface = reinterpret_cast<Surface*>(object);
    if (!surface) return cudaSuccess;
    if (!surfaces.has(surface)) return record(cudaErrorInvalidValue);
    surface->mark = 0;
    surfaces.destroy(surface);
    return cudaSuccess;
}

// ---- Copies to arrays and from them

namespace {

// `bytes` from (x, y) on, row after row; or a box of so many rows.
cudaError_t copy_array(cudaArray_const_t array_, size_t x, size_t y, bool is_target, void* memory,
                       size_t pitch, size_t width, size_t height, cudaMemcpyKind kind,
                       cudaStream_t stream) {
    auto* array = const_cast<cudaArray_t>(array_);
    if (!arrays.has(array)) return record(cudaErrorInvalidResourceHandle);
    const bool is_linear = height == 0;
    Box box = array->box();
    if (is_linear ? y > box.rows || x + width > (box.rows - y) * box.pitch
                  : !array->holds(x, y, 0, width, height, 1))
        return record(cudaErrorInvalidValue);
    box.begin = box.row(y, 0) + x;
    const Box other = box_of(memory, pitch);
    return submit_copy(is_target ? box : other, is_target ? other : box,
                       {width, is_linear ? 1 : height, 1}, kind, stream);
}

}  // namespace

cudaError_t cudaMemcpyToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from,
                                   size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return copy_array(to, x, y, true, const_cast<void*>(from), bytes, bytes, 0, kind, stream);
}
cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t bytes,
                              cudaMemcpyKind kind) {
    return cudaMemcpyToArrayAsync(to, x, y, from, bytes, kind, nullptr);
}
cudaError_t cudaMemcpyFromArrayAsync(void* to, cudaArray_const_t from, size_t x, size_t y,
                                     size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return copy_array(from, x, y, false, to, bytes, bytes, 0, kind, stream);
}
cudaError_t cudaMemcpyFromArray(void* to, cudaArray_const_t from, size_t x, size_t y, size_t bytes,
                                cudaMemcpyKind kind) {
    return cudaMemcpyFromArrayAsync(to, from, x, y, bytes, kind, nullptr);
}
cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from,
                                     size_t pitch, size_t width, size_t height, cudaMemcpyKind kind,
                                     cudaStream_t stream) {
    if (!height) return cudaSuccess;
    return copy_array(to, x, y, true, const_cast<void*>(from), pitch, width, height, kind, stream);
}
cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch,
                                size_t width, size_t height, cudaMemcpyKind kind) {
    return cudaMemcpy2DToArrayAsync(to, x, y, from, pitch, width, height, kind, nullptr);
}
cudaError_t cudaMemcpy2DFromArrayAsync(void* to, size_t pitch, cudaArray_const_t from, size_t x,
                                       size_t y, size_t width, size_t height, cudaMemcpyKind kind,
                                       cudaStream_t stream) {
    if (!height) return cudaSuccess;
    return copy_array(from, x, y, false, to, pitch, width, height, kind, stream);
}
cudaError_t cudaMemcpy2DFromArray(void* to, size_t pitch, cudaArray_const_t from, size_t x,
                                  size_t y, size_t width, size_t height, cudaMemcpyKind kind) {
    return cudaMemcpy2DFromArrayAsync(to, pitch, from, x, y, width, height, kind, nullptr);
}
cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t to, size_t to_x, size_t to_y,
                                     cudaArray_const_t from, size_t from_x, size_t from_y,
                                     size_t width, size_t height, cudaMemcpyKind kind) {
    auto* source = const_cast<cudaArray_t>(from);
    if (!arrays.has(source)) return record(cudaErrorInvalidResourceHandle);
    if (!height) return cudaSuccess;
    if (!source->holds(from_x, from_y, 0, width, height, 1)) return record(cudaErrorInvalidValue);
    return copy_array(to, to_x, to_y, true, source->box().row(from_y, 0) + from_x,
                      source->box().pitch, width, height, kind, nullptr);
}

}  // namespace api
}  // namespace simulator
