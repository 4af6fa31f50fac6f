"""Not every machine has triton: without it, the kernels are not collected, nor their tests."""

from importlib.util import find_spec

collect_ignore_glob = (
    []
    if find_spec("triton")
    else [
        "src/psdnorm/ops/triton/*.py",
        "tests/ops/test_banded*.py",
        "tests/ops/test_interpreted.py",
    ]
)
