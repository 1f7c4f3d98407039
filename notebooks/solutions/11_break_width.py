"""No multiple of four floats: nothing moves 16 bytes at a time, and no row waits."""

answer = 4095
