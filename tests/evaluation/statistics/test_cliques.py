"""The bars of critical-difference diagrams, against all subsets."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from psdnorm.errors import ArgumentError
from psdnorm.evaluation.statistics import cliques, nemenyi

NORMS = list("abcdefg")


def graph(n_norms, share, seed):
    generator = np.random.default_rng(seed)
    upper = np.triu(generator.random((n_norms, n_norms)) < share, 1)
    norms = NORMS[:n_norms]
    ranks = pd.Series(generator.permutation(n_norms) + 1.0, norms)
    return ranks, pd.DataFrame(upper | upper.T, norms, norms)


def by_all_subsets(ranks, different):
    """Groups without a pair that differs, which are in no other such group."""
    groups = [
        set(group)
        for size in range(2, len(ranks) + 1)
        for group in combinations(ranks.index, size)
        if not any(different.loc[pair] for pair in combinations(group, 2))
    ]
    return [group for group in groups if not any(group < other for other in groups)]


@pytest.mark.parametrize("share", [0, 0.3, 0.6, 0.9, 1])
@pytest.mark.parametrize("seed", range(4))
def test_groups_are_those_that_all_subsets_give(share, seed):
    ranks, different = graph(7, share, seed)
    found = cliques(ranks, different)
    expected = by_all_subsets(ranks, different)
    assert len(found) == len(expected)
    assert all(set(group) in expected for group in found)


def test_groups_run_from_best_to_worst_and_are_sorted_by_their_best():
    for seed in range(5):
        ranks, different = graph(6, 0.5, seed)
        found = cliques(ranks, different)
        for group in found:
            assert ranks[list(group)].is_monotonic_increasing
        firsts = [ranks[group[0]] for group in found]
        assert firsts == sorted(firsts)


def test_those_of_nemenyi_are_neighbours_in_rank():
    scores = np.random.default_rng(2).normal(size=(40, 7)) + 0.5 * np.arange(7)
    result = nemenyi(pd.DataFrame(scores, columns=NORMS))
    order = list(result.mean_ranks.sort_values().index)
    assert len(result.cliques) > 1
    for group in result.cliques:
        begin = order.index(group[0])
        assert group == tuple(order[begin : begin + len(group)])


def test_a_group_may_pass_over_a_norm_that_differs_from_it():
    ranks = pd.Series({"a": 1.0, "b": 2.0, "c": 3.0})
    different = pd.DataFrame(False, list("abc"), list("abc"))
    different.loc["a", "b"] = different.loc["b", "a"] = True
    different.loc["c", "b"] = different.loc["b", "c"] = True
    assert cliques(ranks, different) == [("a", "c")]


def test_a_table_of_other_norms_or_of_one_direction_is_rejected():
    ranks, different = graph(3, 0, 0)
    with pytest.raises(ArgumentError, match=r"different compares a, b, expected .* a, b, c"):
        cliques(ranks, different.loc[["a", "b"], ["a", "b"]])
    different.loc["a", "b"] = True
    with pytest.raises(ArgumentError, match="different is not symmetric"):
        cliques(ranks, different)
