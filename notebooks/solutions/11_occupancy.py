"""As many blocks as the scarcest of four things allows: blocks, threads, registers, bytes."""


def answer(threads, registers, shared):
    warps = -(-threads // 32)
    registers_of_warp = -(-32 * registers // 256) * 256
    blocks = min(
        32,
        2048 // (32 * warps),
        65536 // (registers_of_warp * warps),
        (228 << 10) // (shared + 1024),
    )
    return 32 * warps * blocks
