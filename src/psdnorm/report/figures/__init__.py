"""Every figure of the paper from a folder of runs, as PNG and SVG with words that stand for it."""

from psdnorm.report.figures.building import Figures, build_figures
from psdnorm.report.figures.drawing import Figure

__all__ = ["Figure", "Figures", "build_figures"]
