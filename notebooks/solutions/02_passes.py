"""Fused: read g and x, write dx. Op by op: read g and y, write dz; read dz, write dx."""

answer = {"fused": 3, "op by op": 5}
