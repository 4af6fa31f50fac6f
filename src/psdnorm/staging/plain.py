"""Values as JSON can hold them."""

import math
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Return a value with None for NaN, lists for tuples and arrays, and Python's own numbers."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value
