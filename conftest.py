"""Doctests import every module; the kernels need triton, which not every machine has."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["src/psdnorm/ops/kernels*.py"]
