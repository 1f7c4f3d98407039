"""A block needs 48 * 512 = 24576 of the 65536 registers: 2 fit, with an occupancy of 50%."""

answer = 65536 // (48 * 512)
