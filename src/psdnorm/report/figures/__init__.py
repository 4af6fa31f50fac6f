"""Every figure of the paper from a folder of runs, as PNG and SVG with alternative text."""

from psdnorm.present import Figure
from psdnorm.report.figures.all_figures import Figures, build_figures, draw_all
from psdnorm.report.figures.night_figures import STAGE_LEVELS, draw_hypnogram, draw_probabilities
from psdnorm.report.figures.score_figures import SEEDS_OMITTED, by_stage, forest, scattered

__all__ = ["Figure", "Figures", "build_figures"]
