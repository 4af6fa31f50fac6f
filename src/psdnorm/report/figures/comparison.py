"""Norms that can be compared: of one model, trained on as many subjects, at one setting each."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from psdnorm.evaluation.statistics import BlockTables, block_tables
from psdnorm.report.figures.drawing import CannotDraw
from psdnorm.report.results import MODEL_NAMES, NORM_NAMES, Results
from psdnorm.training.adabn import ADABN
from psdnorm.training.cell import PROTOCOL_DEPTH

BATCH = "batch"
PROTOCOL_FILTER = 5
SCORE = "balanced_accuracy"


@dataclass(frozen=True)
class Comparison:
    """Norms side by side.

    Attributes
    ----------
    results : Results
        Of the compared cells alone: every norm at one filter size and depth.
    model : str
    balanced : int or None
    labels : dict of str to str
        What a norm is called, in the order of the paper.
    left_out : list of str
        A sentence for each setting of a norm that is not compared here.
    """

    results: Results
    model: str
    balanced: int | None
    labels: dict[str, str]
    left_out: list[str]

    @property
    def key(self) -> str:
        """What files are called after."""
        return f"{self.model}-{_size_key(self.balanced)}"

    @property
    def setting(self) -> str:
        """Model and size in words."""
        return setting(self.model, self.balanced)

    @cached_property
    def tables(self) -> BlockTables:
        """Balanced accuracies of the same people under every norm, in percent."""
        runs = self.results.runs
        columns = ["norm", "cohort", "subject", "seed"]
        scores = runs[columns].assign(value=100 * runs[SCORE])
        return block_tables(scores, norms=list(self.labels))

    def needs_two_norms(self, what: str) -> None:
        """Refuse to draw what compares norms where there is one, or nobody whom all have."""
        if len(self.labels) < 2:
            only = next(iter(self.labels.values()))
            raise CannotDraw(f"{what} ({self.setting}): it compares norms, found only {only}.")
        if not self.tables.subjects.notna().any(axis=None):
            raise CannotDraw(
                f"{what} ({self.setting}): there is no subject whom every norm has in the same "
                "seed."
            )

    @property
    def remarks(self) -> str:
        """What a caption must say about who and what was left out."""
        lacking = [self._named(sentence) for sentence in self.tables.left_out]
        return " ".join([*(f"{each}." for each in shortened(lacking)), *self.left_out])

    def _named(self, sentence: str) -> str:
        norm, rest = sentence.split(" ", 1)
        return f"{self.labels[norm]} {rest}"


def comparisons(results: Results) -> list[Comparison]:
    """Return every model and training size that has a finished cell, the paper's order first.

    A norm that was run with several filter sizes or depths is compared at the protocol's, or at
    the one that has most cells.

    Parameters
    ----------
    results : Results
    """
    found = []
    for model in sorted(results.cells["model"].unique(), key=_order_of(MODEL_NAMES)):
        sizes = results.of(model=model).cells["balanced"]
        values = [None] * bool(sizes.isna().any()) + sorted(map(int, sizes.dropna().unique()))[::-1]
        found += [_compared(results.of(model=model, balanced=n), model, n) for n in values]
    return found


def norms_of(cells: pd.DataFrame) -> list[str]:
    """Return the norms of some cells in the order of the paper."""
    return sorted(cells["norm"].unique(), key=_order_of(NORM_NAMES))


def name_of(norm: str) -> str:
    """Return what the paper calls a norm.

    Examples
    --------
    >>> name_of("psd"), name_of("adabn5")
    ('PSDNorm', 'AdaBN(5)')
    """
    if norm not in NORM_NAMES and norm.startswith(ADABN):
        return f"AdaBN({norm.removeprefix(ADABN)})"
    return NORM_NAMES.get(norm, norm)


def setting(model: str, balanced: int | None) -> str:
    """Return model and training size in words.

    Examples
    --------
    >>> setting("usleep", 400)
    'U-Sleep, balanced@400'
    """
    size = "all subjects" if balanced is None else f"balanced@{balanced}"
    return f"{MODEL_NAMES.get(model, model)}, {size}"


def shortened(sentences: list[str], most: int = 3) -> list[str]:
    """Return the first sentences and how many more there are."""
    if len(sentences) <= most + 1:
        return sentences
    return [*sentences[:most], f"And {len(sentences) - most} more of the kind"]


def joined(names: list[str]) -> str:
    """Return names as a sentence lists them.

    Examples
    --------
    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def unusual(filter_size: object = None, norm_depth: object = None) -> str:
    """Say in what a norm's setting is not the protocol's.

    Examples
    --------
    >>> unusual(17, 1), unusual(5, 3)
    (' (f = 17, 1 block)', '')
    """
    parts = []
    if _known(filter_size) not in (None, PROTOCOL_FILTER):
        parts.append(f"f = {filter_size}")
    if _known(norm_depth) not in (None, PROTOCOL_DEPTH):
        parts.append(f"{norm_depth} block{'s' * (norm_depth != 1)}")
    return f" ({', '.join(parts)})" if parts else ""


def _compared(results: Results, model: str, balanced: int | None) -> Comparison:
    cells, labels, left_out, kept = results.cells, {}, [], []
    for norm in norms_of(cells):
        own = cells[cells["norm"] == norm]
        counts = own.groupby(["filter_size", "norm_depth"], dropna=False, sort=True).size()
        settings = sorted(counts.items(), key=lambda item: (_is_unusual(item[0]), -item[1]))
        (filter_size, depth), _ = chosen = settings[0]
        kept.append(
            results.of(norm=norm, filter_size=_known(filter_size), norm_depth=_known(depth))
        )
        labels[norm] = name_of(norm) + unusual(*chosen[0])
        others = [unusual(*each).strip(" ()") for each, _ in settings[1:]]
        if others:
            if len(others) > 4:
                others = [*others[:3], f"{len(others) - 3} other settings"]
            left_out.append(f"{name_of(norm)} with {joined(others)} is left out.")
    numbers = [number for each in kept for number in each.cells["cell"]]
    chosen_cells = cells[cells["cell"].isin(numbers)]
    subjects = results.subjects[results.subjects["cell"].isin(numbers)]
    chosen_results = Results(
        results.path, chosen_cells, subjects, results.lacking, results.config, results.simulated
    )
    return Comparison(chosen_results, model, balanced, labels, left_out)


def _is_unusual(arm: tuple) -> bool:
    return bool(unusual(*arm))


def _known(value: object) -> object:
    return None if pd.isna(value) else value


def _size_key(balanced: int | None) -> str:
    return "all" if balanced is None else f"at{balanced}"


def _order_of(names: dict[str, str]) -> Callable[[str], tuple[int, str]]:
    known = list(names)
    return lambda name: (known.index(name) if name in known else len(known), name)
