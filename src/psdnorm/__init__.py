"""PSDNorm: normalization of the power spectral density of signals."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from psdnorm import functional
    from psdnorm.adaptation import adapt, adapt_batchnorm, calibrate, domains
    from psdnorm.alignment import TMA
    from psdnorm.convert import convert_norm
    from psdnorm.layer import PSDNorm
    from psdnorm.staging import stage

__version__ = "0.1.0.dev0"
__all__ = [
    "TMA",
    "PSDNorm",
    "adapt",
    "adapt_batchnorm",
    "calibrate",
    "convert_norm",
    "domains",
    "functional",
    "stage",
]

# imported lazily: importing torch takes seconds, during which the command line could not handle
# Ctrl-C, and TMA needs scikit-learn, which the layer does not
_ROOMS = {
    "TMA": "psdnorm.alignment",
    "PSDNorm": "psdnorm.layer",
    "adapt": "psdnorm.adaptation",
    "adapt_batchnorm": "psdnorm.adaptation",
    "calibrate": "psdnorm.adaptation",
    "convert_norm": "psdnorm.convert",
    "domains": "psdnorm.adaptation",
    "stage": "psdnorm.staging",
}


def __getattr__(name: str):
    if name == "functional":
        return importlib.import_module("psdnorm.functional")
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(importlib.import_module(_ROOMS[name]), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
