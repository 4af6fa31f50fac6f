"""Groups of norms that do not differ: the bars of a critical-difference diagram."""

from collections.abc import Iterator

import pandas as pd

from psdnorm.errors import ArgumentError


def cliques(mean_ranks: "pd.Series[float]", different: pd.DataFrame) -> list[tuple[str, ...]]:
    """Find the largest groups of norms within which no pair was shown to differ.

    Differences of mean ranks (Nemenyi) give groups of neighbours in rank. Tests of pairs (Wilcoxon)
    need not: a bar that is drawn from the best to the worst norm of a group may then pass one that
    is not in it, so mark its members.

    Parameters
    ----------
    mean_ranks : Series, (n_norms,)
    different : DataFrame of bool, (n_norms, n_norms)
        Symmetric; rows and columns are the norms.

    Returns
    -------
    list of tuple of str
        Groups of two or more, none within another, each from its best norm to its worst; sorted by
        the rank of their best, then of their worst norm.

    Examples
    --------
    >>> ranks = pd.Series({"layer": 2.8, "batch": 2.0, "psd": 1.2})
    >>> apart = ranks.map(lambda rank: (ranks - rank).abs() > 1)
    >>> cliques(ranks, pd.DataFrame(dict(apart)))
    [('psd', 'batch'), ('batch', 'layer')]
    """
    norms = list(mean_ranks.sort_values(kind="stable").index)
    if sorted(norms) != sorted(different.index) or sorted(norms) != sorted(different.columns):
        raise ArgumentError(
            f"different compares {', '.join(map(str, different.index))}, expected rows and columns "
            f"for the norms of mean_ranks, {', '.join(map(str, mean_ranks.index))}"
        )
    apart = different.loc[norms, norms].to_numpy(bool)
    if (apart != apart.T).any():
        raise ArgumentError("different is not symmetric, expected the same for a pair both ways")
    alike = [
        {j for j in range(len(norms)) if j != i and not apart[i, j]} for i in range(len(norms))
    ]
    groups = (sorted(group) for group in _maximal(set(), set(range(len(norms))), set(), alike))
    found = sorted((group for group in groups if len(group) > 1), key=lambda g: (g[0], g[-1], g))
    return [tuple(norms[place] for place in group) for group in found]


def _maximal(
    group: set[int], candidates: set[int], done: set[int], alike: list[set[int]]
) -> Iterator[set[int]]:
    """Bron and Kerbosch's search, with a pivot."""
    if not candidates and not done:
        yield group
        return
    pivot = max(candidates | done, key=lambda place: len(alike[place] & candidates))
    for place in sorted(candidates - alike[pivot]):
        yield from _maximal(group | {place}, candidates & alike[place], done & alike[place], alike)
        candidates = candidates - {place}
        done = done | {place}
