"""300 * 300 is beyond 65504, where float16 ends; less 49984 it is not."""

answer = (300.0, 300.0, -49984.0)
