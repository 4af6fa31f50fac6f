"""What a comparison of norms can say, and how surely.

:func:`block_tables` arranges scores so that every norm has the same people; all else takes one of
its tables, blocks by norms, higher is better; blocks with a NaN are left out and counted. Every
result carries what its caption must say: see :class:`Basis`. The page ``docs/statistics.md`` says
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
