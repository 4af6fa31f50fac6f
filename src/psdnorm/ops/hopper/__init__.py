"""Rows that stay on the chip: CUDA C++ kernels for Hopper."""
