"""Statistics for comparing norms.

:func:`block_tables` arranges scores so that all norms share the same subjects; all other functions
take one of its tables (blocks by norms, higher is better) and exclude and count blocks with a NaN.
Every result includes the facts for its caption, see :class:`Basis`. ``docs/statistics.md`` explains
what each number means and what it does not.
"""

from psdnorm.evaluation.statistics.blocks import (
    DECIMALS,
    Basis,
    BlockTables,
    block_tables,
    subject_caveat,
)
from psdnorm.evaluation.statistics.gains import (
    BEST_BASELINE,
    BootstrapResult,
    FewerSubjectsResult,
    HardestResult,
    ImprovedResult,
    bootstrap_gains,
    cohort_caveat,
    fewer_subjects_factor,
    gain_on_hardest,
    share_improved,
)
from psdnorm.evaluation.statistics.rank_tests import (
    FriedmanResult,
    NemenyiResult,
    WilcoxonHolmResult,
    cliques,
    friedman,
    holm,
    nemenyi,
    wilcoxon_holm,
)

__all__ = [
    "BEST_BASELINE",
    "Basis",
    "BlockTables",
    "BootstrapResult",
    "FewerSubjectsResult",
    "FriedmanResult",
    "HardestResult",
    "ImprovedResult",
    "NemenyiResult",
    "WilcoxonHolmResult",
    "block_tables",
    "bootstrap_gains",
    "cliques",
    "cohort_caveat",
    "fewer_subjects_factor",
    "friedman",
    "gain_on_hardest",
    "holm",
    "nemenyi",
    "share_improved",
    "subject_caveat",
    "wilcoxon_holm",
]
