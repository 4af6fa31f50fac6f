"""PSDNorm: normalization of the power spectral density of signals."""

from typing import TYPE_CHECKING

from psdnorm import functional
from psdnorm.adapt import adapt_batchnorm, calibrate
from psdnorm.convert import convert_norm
from psdnorm.layer import PSDNorm

if TYPE_CHECKING:
    from psdnorm.alignment import TMA

__version__ = "0.1.0.dev0"
__all__ = ["TMA", "PSDNorm", "adapt_batchnorm", "calibrate", "convert_norm", "functional"]


def __getattr__(name: str):
    # TMA stands below the wall: it needs scikit-learn, which the layer does not
    if name == "TMA":
        from psdnorm.alignment import TMA

        return TMA
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
