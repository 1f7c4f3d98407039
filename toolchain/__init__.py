"""Compilers, for jitload: those of the machine, their errors, and the sources they read."""
