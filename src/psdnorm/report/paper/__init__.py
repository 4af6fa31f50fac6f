"""The paper's own numbers: its tables as data, and where they contradict each other.

From *PSDNorm: Temporal Normalization for Deep Learning in Sleep Staging* (Gnassounou, Collas,
Flamary, Gramfort; ICLR 2026). Numbers are as printed, one row per value, misprints and all;
:func:`misprints` lists the contradictions.

Not available, because the text gives no numbers for them: the critical-difference diagrams
(fig:cd_diagram, fig:critical_diagram_all_subjects), power spectral densities after each encoder
(fig:psd_normalization), scores against filter size (fig:sensitive), training-set size
(fig:number_subjects) and number of layers (fig:usleep_layers), differences of class-wise F1
(fig:classwise_f1_diff), and the subjects of the scatter plot (fig:scatter), of which the text gives
the shares that improve (``subjects-improved``). fig:concept and fig:geodesic show no results.
"""

from psdnorm.report.paper.printed import Misprint, PaperTable, misprints, paper_table, paper_tables

__all__ = ["Misprint", "PaperTable", "misprints", "paper_table", "paper_tables"]
