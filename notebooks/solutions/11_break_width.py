"""No multiple of four floats: nothing moves 16 bytes at a time, and no row is kept."""

answer = 4095
