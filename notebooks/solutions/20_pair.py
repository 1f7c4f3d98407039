def answer(pairs, warps):
    """One thread announces bytes; each pair commits; each epilogue warp of both blocks arrives."""
    return 1, pairs, 2 * warps
