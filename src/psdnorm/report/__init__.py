"""Results as pages that open from disk, without a network."""

from psdnorm.present.page import Page

__all__ = ["Page"]
