"""What norms, models and settings are called in a report, and in which order they stand."""

import os
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from psdnorm.training import MODEL_NAMES, NORM_NAMES, PROTOCOL_DEPTH, PROTOCOL_FILTER


def norm_place(norm: str) -> tuple:
    """Return what sorts norms as the paper does, those that it has not behind."""
    return _place(norm, NORM_NAMES)


def model_place(model: str) -> tuple:
    """Return what sorts models as the paper does, those that it has not behind."""
    return _place(model, MODEL_NAMES)


def norms_in_order(norms: Iterable[str]) -> list[str]:
    """Return norms, each once, in the order of the paper."""
    return sorted(set(norms), key=norm_place)


def is_protocol(cells: pd.DataFrame) -> "pd.Series[bool]":
    """Tell which cells have the filter size and depth of the protocol, or none."""
    as_printed = cells["filter_size"].fillna(PROTOCOL_FILTER).eq(PROTOCOL_FILTER)
    return as_printed & cells["norm_depth"].fillna(PROTOCOL_DEPTH).eq(PROTOCOL_DEPTH)


def standing_arm(cells: pd.DataFrame) -> str:
    """Return the arm that stands for a norm: the protocol's, else that of most cells.

    Parameters
    ----------
    cells : DataFrame
        Of one norm, model and training size, from ``Results.cells``.
    """
    as_printed = is_protocol(cells)
    candidates = cells[as_printed] if as_printed.any() else cells
    return str(candidates["arm"].value_counts().index[0])


def shown_path(path: str | os.PathLike[str]) -> str:
    """Return a path as a page may show it: of an absolute one, which may name a user, the end.

    Examples
    --------
    >>> shown_path("runs/a"), shown_path("/home/ada/runs")
    ('runs/a', 'runs')
    """
    return Path(path).name if Path(path).is_absolute() else os.fspath(path)


def without_roots(words: str, *folders: Path) -> str:
    """Return a sentence in which these folders are called as a page may show them.

    Parameters
    ----------
    words : str
    *folders : Path

    Examples
    --------
    >>> without_roots("/home/ada/runs/grid.json is empty", Path("/home/ada/runs"))
    'runs/grid.json is empty'
    """
    for folder in folders:
        words = words.replace(str(folder), shown_path(folder))
    return words


def _place(name: str, known: dict[str, str]) -> tuple:
    places = list(known)
    return places.index(name) if name in known else len(places), len(name), name
