"""With 8 bits of precision there is every integer up to 256, and then every second one."""

answer = 256
