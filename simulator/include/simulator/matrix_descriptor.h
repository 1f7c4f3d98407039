// The matrix descriptors of wgmma: which bytes of shared memory they mean.
#pragma once
#include "shared_window.h"

namespace simulator::tensor_cores {

// A matrix in shared memory, as the chapter on wgmma of PTX's manual has it.
struct Descriptor {
    uint32_t start, leading, stride, swizzle;  // bytes; swizzle: 0, 32, 64 or 128
    uint8_t base_offset;                       // in lines of 128 bytes

    explicit constexpr Descriptor(uint64_t bits)
        : start(uint32_t(bits & 0x3fff) << 4),
          leading(uint32_t(bits >> 16 & 0x3fff) << 4),
          stride(uint32_t(bits >> 32 & 0x3fff) << 4),
          swizzle(bits >> 62 ? 256 >> (bits >> 62) : 0),
          base_offset(uint8_t(bits >> 49 & 7)) {}

    // The offset of 16 bytes: of a row by k, `line` is the row and `unit` a sixteenth of its
    // bytes; of one that is transposed `line` is k, and the elements of a unit are along m or n.
    uint32_t offset(uint32_t line, uint32_t unit, bool is_transposed) const {
        if (!swizzle)
            return is_transposed ? unit * stride + line / 8 * leading + line % 8 * 16
                                 : line / 8 * stride + unit * leading + line % 8 * 16;
        const uint32_t units = swizzle / 16;
        if (!is_transposed) return line / 8 * stride + line % 8 * swizzle + unit * 16;
        return unit % units * 16 + unit / units * leading + line % 8 * swizzle + line / 8 * stride;
    }
};

// In a descriptor an address has 18 bits. What is none of the dynamic part is of the static one.
// Where several kernels have more than 256 KB of that, it is in the 256 KB from the lowest address
// on that the block has asked for.
inline const char* at_descriptor(const Block& block, uint32_t address) {
    const uint32_t end = first_shared + uint32_t(block.launch->shared);
    if (address >= first_shared && address < end) return shared_pointer_in(block, address);
    const bool is_known = block.static_end - block.static_begin <= window;
    const bool is_first = is_known || block.first_static == no_shared;
    const uint32_t first = is_first ? begin_of_static(block) : block.first_static;
    return shared_pointer_in(block, first + ((address - first) & (window - 1)));
}

}  // namespace simulator::tensor_cores
