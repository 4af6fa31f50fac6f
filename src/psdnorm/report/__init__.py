"""Results as pages that open from disk, without a network."""

from psdnorm.present import Page
from psdnorm.report.contest import METRIC
from psdnorm.report.report_page import (
    FIGURES,
    MOST_BYTES,
    MOST_SUBJECTS,
    PAGE,
    SUBJECTS_CSV,
    TABLES,
    add_figures,
    build_report,
    check_place,
    lowest_first,
    new_folder,
    whole_rows,
    write_figures,
)
from psdnorm.report.results import (
    Results,
    instead_of_runs,
    model_place,
    norm_place,
    read_results,
    runs_inside,
    shown_path,
    without_roots,
)
from psdnorm.report.trained_network import Trained, is_checkpoint, load_trained

__all__ = ["Page", "Results", "build_report", "read_results"]
