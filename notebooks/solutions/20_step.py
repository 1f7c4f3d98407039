# Warp 3 reaches lanes 96 to 127, and the block's columns begin at 0.
answer = (96, 0)
