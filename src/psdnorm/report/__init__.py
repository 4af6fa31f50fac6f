"""Results as pages that open from disk, without a network."""

from psdnorm.report.page import Page

__all__ = ["Page"]
