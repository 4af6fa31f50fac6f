"""Grids of runs: what to train, where, and how far it is."""
