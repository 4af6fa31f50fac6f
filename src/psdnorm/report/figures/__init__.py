"""Every figure of the paper from a folder of runs, as PNG and SVG with words that stand for it."""

from psdnorm.present.figure import Figure
from psdnorm.report.figures.all_figures import Figures, build_figures

__all__ = ["Figure", "Figures", "build_figures"]
