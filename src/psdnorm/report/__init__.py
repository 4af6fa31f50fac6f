"""Results as pages that open from disk, without a network."""

from psdnorm.present import Page
from psdnorm.report.build import build_report
from psdnorm.report.drilldown import MOST_SUBJECTS, SUBJECTS_CSV, lowest_first, whole_rows
from psdnorm.report.naming import model_place, norm_place, shown_path, without_roots
from psdnorm.report.pieces import MOST_BYTES, add_figures, write_figures
from psdnorm.report.report_folder import FIGURES, PAGE, TABLES, check_place, new_folder
from psdnorm.report.results import Results, instead_of_runs, read_results, runs_inside
from psdnorm.report.trained import Trained, is_checkpoint, load_trained

__all__ = ["Page"]
