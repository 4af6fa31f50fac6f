"""A study: nights from a seed, a grid of cells on them, run in pieces, its scores in one file."""

from psdnorm.lab.study.definition import Nights, Study, read_study

__all__ = ["Nights", "Study", "read_study"]
