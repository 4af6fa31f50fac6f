"""PSDNorm: normalization of the power spectral density of signals."""

from psdnorm import functional
from psdnorm.layer import PSDNorm

__version__ = "0.1.0.dev0"
__all__ = ["PSDNorm", "functional"]
