"""What norms, models and settings are called in a report, and in which order they stand."""

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from psdnorm.training import ADABN, AUTO, PROTOCOL_DEPTH, Cell, filter_size_of

# norms in the order of the paper, and as it writes them
NORM_NAMES = {
    "batch": "BatchNorm",
    "adabn3": "AdaBN(3)",
    "adabn12": "AdaBN(12)",
    "adabnall": "AdaBN(all)",
    "layer": "LayerNorm",
    "instance": "InstanceNorm",
    "tma": "TMA",
    "psd-white": "PSDNorm-white",
    "psd": "PSDNorm",
}
MODEL_NAMES = {"usleep": "U-Sleep", "cnn-transformer": "CNNTransformer"}
PROTOCOL_FILTER = filter_size_of(Cell())
AUTO_SIZE = 2**31 - 1  # stands for "auto" where filter sizes are numbers: behind all of them
SIZES = ("filter_size", "norm_depth")
ALL = "all"


def norm_name(norm: str) -> str:
    """Return a norm as the paper writes it; AdaBN of any number of layers, too.

    Examples
    --------
    >>> norm_name("psd"), norm_name("adabn7")
    ('PSDNorm', 'AdaBN(7)')
    """
    if norm.startswith(ADABN):
        return f"AdaBN({norm.removeprefix(ADABN)})"
    return NORM_NAMES.get(norm, norm)


def model_name(model: str) -> str:
    """Return a model as the paper writes it."""
    return MODEL_NAMES.get(model, model)


def setting_name(model: str, balanced: int | str | None) -> str:
    """Say which network learned from whom.

    Examples
    --------
    >>> setting_name("usleep", "all"), setting_name("usleep", 40)
    ('U-Sleep, all subjects', 'U-Sleep, balanced@40')
    """
    size = "all subjects" if balanced in (None, ALL) else f"balanced@{balanced}"
    return f"{model_name(model)}, {size}"


def arm_name(
    norm: str, filter_size: Any = None, norm_depth: Any = None, said: Collection[str] = ()
) -> str:
    """Return what people call a norm at a setting, see :func:`unusual`.

    Examples
    --------
    >>> arm_name("psd", 17, 3), arm_name("psd", 5, 3), arm_name("psd", 5, 3, SIZES)
    ('PSDNorm (f = 17)', 'PSDNorm', 'PSDNorm (f = 5, 3 blocks)')
    """
    return norm_name(norm) + unusual(filter_size, norm_depth, said)


def unusual(filter_size: Any = None, norm_depth: Any = None, said: Collection[str] = ()) -> str:
    """Say in what a norm's setting is not the protocol's.

    Parameters
    ----------
    filter_size, norm_depth : int, optional
        None or NA where the norm has none; "auto" and what stands for it say so.
    said : collection of {"filter_size", "norm_depth"}
        What is said in any case, where the norm has it.

    Examples
    --------
    >>> unusual(17, 1), unusual(5, 3), unusual(5, 3, ["filter_size"])
    (' (f = 17, 1 block)', '', ' (f = 5)')
    >>> unusual("auto", 3)
    ' (f auto)'
    """
    filter_size, norm_depth = (None if pd.isna(n) else n for n in (filter_size, norm_depth))
    parts = []
    if filter_size in (AUTO, AUTO_SIZE):
        parts.append("f auto")
    elif filter_size is not None and (filter_size != PROTOCOL_FILTER or "filter_size" in said):
        parts.append(f"f = {filter_size}")
    if norm_depth is not None and (norm_depth != PROTOCOL_DEPTH or "norm_depth" in said):
        parts.append(f"{norm_depth} block{'s' * bool(norm_depth != 1)}")
    return f" ({', '.join(parts)})" if parts else ""


def size_number(filter_size: int | str | None) -> int | None:
    """Return a cell's filter size as a column of numbers has it.

    Examples
    --------
    >>> size_number(17), size_number("auto") == AUTO_SIZE, size_number(None)
    (17, True, None)
    """
    return AUTO_SIZE if filter_size == AUTO else filter_size  # type: ignore[return-value]


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
