"""Compare two experiments or two checkpoints."""

from psdnorm.compare.checkpoints import compare_checkpoints
from psdnorm.compare.compare_page import sentences, write_comparison
from psdnorm.compare.runs import HEAD, ArmComparison, Comparison, compare
