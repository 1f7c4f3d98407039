"""dx: g and x in, dx out, 2 bytes each. The weights' gradients apart would read g and x again."""

answer = {"dx": 6, "dweight and dbias apart": 4}
