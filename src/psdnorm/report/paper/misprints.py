"""Where the paper contradicts itself, as far as its own numbers tell."""

import json
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Misprint:
    """Something that the paper says and its tables do not.

    Attributes
    ----------
    name : str
        Short, unique.
    tables : tuple of str
        Those that show it, as in :func:`~psdnorm.report.paper.paper_tables`.
    place : {"text", "caption", "table"}
        Where it is said.
    kind : {"claim", "mean", "spread", "bold", "wording", "rounding"}
        A claim that the tables do not bear out; a mean that its rows do not give; a ± that is
        something else; the best value not in bold; a slip of the pen; digits cut off.
    says, shows : str
        What the paper says, and what its tables show.
    value : float or None
        The number in ``shows`` that speaks against it.
    norm, balanced, dataset : optional
        Of the row, where it is about a single one.
    """

    name: str
    tables: tuple[str, ...]
    place: str
    kind: str
    says: str
    shows: str
    value: float | None = None
    norm: str | None = None
    balanced: int | str | None = None
    dataset: str | None = None


def misprints() -> list[Misprint]:
    """Return all that is known, in the order of the paper.

    Examples
    --------
    >>> first = misprints()[0]
    >>> first.name, first.tables, first.value
    ('results-caption-mean', ('results',), None)
    """
    text = files(__package__).joinpath("misprints.json").read_text(encoding="utf-8")
    return [Misprint(**entry | {"tables": tuple(entry["tables"])}) for entry in json.loads(text)]
