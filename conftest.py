"""Doctests import every module; those of the kernels need triton, which not every machine has."""

from importlib.util import find_spec

collect_ignore_glob = (
    []
    if find_spec("triton")
    else [
        "src/psdnorm/ops/triton/*.py",
        "src/psdnorm/ops/conv/*_kernels.py",
        "tests/ops/conv/test_banded*.py",
    ]
)
