"""Packages of kernels that need nothing of this project: `python -m jitload ship`."""
