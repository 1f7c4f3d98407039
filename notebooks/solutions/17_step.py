"""Row 2 has seen 1 when the second tile brings 3."""

answer = 2, 8
