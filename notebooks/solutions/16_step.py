"""Step 4 needs stage 0 again, of which the consumers complete the phase of parity 0."""

answer = 4, 0
