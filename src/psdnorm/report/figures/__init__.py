"""Every figure of the paper from a folder of runs, as PNG and SVG with words that stand for it."""

from psdnorm.present import Figure
from psdnorm.report.figures.all_figures import Figures, build_figures
from psdnorm.report.figures.comparison import BATCH
from psdnorm.report.figures.curve_figures import factor_words, size_factors
from psdnorm.report.figures.hypnodensity import STAGE_LEVELS, draw_probabilities, draw_stages
from psdnorm.report.figures.stage_figures import SEEDS_LEFT_OUT, by_stage
from psdnorm.report.figures.subject_figures import forest, scattered

__all__ = ["Figure", "Figures", "build_figures"]
