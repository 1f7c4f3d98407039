// Packed numbers of 4 and 6 bits, as shared memory has them for tensor cores.
#pragma once

namespace simulator::tensor_cores {
namespace {

// 16 bytes with 16 numbers of so many bits in the first of them, as a byte for each: 6 bits in its
// lower ones, 4 bits in bits 2 to 5.
void unpack(char* bytes, size_t count, int bits) {
    for (size_t first = 0; first < count; first += 16) {
        uint64_t words[3] = {};
        memcpy(words, bytes + first, 16);
        for (int i = 0; i < 16; i++) {
            const int at = i * bits % 64;
            uint64_t number = words[i * bits / 64] >> at;
            if (at + bits > 64) number |= words[i * bits / 64 + 1] << (64 - at);
            bytes[first + i] = char(bits == 4 ? (number & 15) << 2 : number & 63);
        }
    }
}

}  // namespace
}  // namespace simulator::tensor_cores
