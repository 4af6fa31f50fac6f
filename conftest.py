"""Doctests import every module; those of the kernels need triton, which not every machine has."""

from importlib.util import find_spec

collect_ignore_glob = (
    [] if find_spec("triton") else ["src/psdnorm/ops/kernels*.py", "tests/ops/test_banded*.py"]
)
