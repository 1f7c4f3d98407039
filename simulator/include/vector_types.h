// CUDA's short vectors (float4 and the like) with their make_ functions, and dim3.
#pragma once

#define SIMULATOR_VECTORS(T, name, align2, align4)                        \
    struct name##1 { T x; };                                              \
    struct alignas(align2) name##2 { T x, y; };                           \
    struct name##3 { T x, y, z; };                                        \
    struct alignas(align4) name##4 { T x, y, z, w; };                     \
    constexpr name##1 make_##name##1(T x) { return {x}; }                 \
    constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }         \
    constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
    constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

SIMULATOR_VECTORS(signed char, char, 2, 4)
SIMULATOR_VECTORS(unsigned char, uchar, 2, 4)
SIMULATOR_VECTORS(short, short, 4, 8)
SIMULATOR_VECTORS(unsigned short, ushort, 4, 8)
SIMULATOR_VECTORS(int, int, 8, 16)
SIMULATOR_VECTORS(unsigned int, uint, 8, 16)
SIMULATOR_VECTORS(long, long, 16, 16)
SIMULATOR_VECTORS(unsigned long, ulong, 16, 16)
SIMULATOR_VECTORS(long long, longlong, 16, 16)
SIMULATOR_VECTORS(unsigned long long, ulonglong, 16, 16)
SIMULATOR_VECTORS(float, float, 8, 16)
SIMULATOR_VECTORS(double, double, 16, 16)
#undef SIMULATOR_VECTORS

// The names that say how a vector of 32 bytes is aligned.
#define SIMULATOR_VECTORS(T, name, align)                                        \
    struct alignas(align) name##4_##align##a { T x, y, z, w; };                  \
    constexpr name##4_##align##a make_##name##4_##align##a(T x, T y, T z, T w) { \
        return {x, y, z, w};                                                     \
    }
#define SIMULATOR_LONG_VECTORS(T, name) \
    SIMULATOR_VECTORS(T, name, 16) SIMULATOR_VECTORS(T, name, 32)
SIMULATOR_LONG_VECTORS(long, long)
SIMULATOR_LONG_VECTORS(unsigned long, ulong)
SIMULATOR_LONG_VECTORS(long long, longlong)
SIMULATOR_LONG_VECTORS(unsigned long long, ulonglong)
SIMULATOR_LONG_VECTORS(double, double)
#undef SIMULATOR_LONG_VECTORS
#undef SIMULATOR_VECTORS

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
