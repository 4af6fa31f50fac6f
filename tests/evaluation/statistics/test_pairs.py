"""Wilcoxon's test of pairs with Holm's correction, against enumeration, SciPy and statsmodels."""

from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from psdnorm.evaluation.statistics import holm, wilcoxon_holm


def table(n_blocks=12, n_norms=4, seed=0, decimals=9):
    generator = np.random.default_rng(seed)
    scores = generator.normal(0.7, 0.1, (n_blocks, n_norms)) + 0.05 * np.arange(n_norms)
    return pd.DataFrame(scores.round(decimals), columns=[f"n{k}" for k in range(n_norms)])


def enumerated_p(differences):
    """Two-sided p over all signs that the differences could have had."""
    kept = differences[differences != 0]
    ranks = stats.rankdata(np.abs(kept))
    sums = np.array(
        [ranks[list(signs)].sum() for signs in product((False, True), repeat=len(kept))]
    )
    found = ranks[kept > 0].sum()
    return min(1, 2 * min((sums >= found).mean(), (sums <= found).mean()))


def holm_by_hand(p):
    """The largest of m·p₁, (m-1)·p₂, … up to one's own place."""
    order = sorted(range(len(p)), key=lambda k: p[k])
    corrected = [0.0] * len(p)
    for place, k in enumerate(order):
        steps = [(len(p) - before) * p[order[before]] for before in range(place + 1)]
        corrected[k] = min(1.0, max(steps))
    return corrected


@pytest.mark.parametrize("decimals", [9, 1], ids=["no ties", "ties and zeros"])
def test_p_of_a_pair_is_that_of_all_signs_it_could_have_had(decimals):
    values = table(n_blocks=10, decimals=decimals)
    result = wilcoxon_holm(values)
    for one, other in combinations(values, 2):
        differences = (values[one] - values[other]).round(9).to_numpy()
        assert result.p_single.loc[one, other] == pytest.approx(enumerated_p(differences))


@pytest.mark.parametrize("n_blocks", [5, 10, 14, 40, 400])
@pytest.mark.parametrize("decimals", [9, 2], ids=["no ties", "ties and zeros"])
def test_p_of_a_pair_is_scipys(n_blocks, decimals):
    values = table(n_blocks, decimals=decimals)
    result = wilcoxon_holm(values)
    for one, other in combinations(values, 2):
        differences = (values[one] - values[other]).round(9)
        expected = stats.wilcoxon(differences, zero_method="wilcox").pvalue
        assert result.p_single.loc[one, other] == pytest.approx(expected, rel=1e-9)


def test_holm_is_the_definition_and_that_of_statsmodels():
    p = np.random.default_rng(0).random(15) ** 4
    p[3] = p[8]
    np.testing.assert_allclose(holm(p), holm_by_hand(p.tolist()))
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    np.testing.assert_allclose(holm(p), multitest.multipletests(p, method="holm")[1])


def test_the_pairs_of_a_table_are_corrected_together_and_differ_up_to_alpha():
    values = table()
    result = wilcoxon_holm(values, alpha=0.1)
    pairs = list(combinations(values, 2))
    single = [result.p_single.loc[pair] for pair in pairs]
    np.testing.assert_allclose([result.p.loc[pair] for pair in pairs], holm_by_hand(single))
    assert (result.p == result.p.T).all(axis=None)
    assert (result.different == (result.p <= 0.1)).all(axis=None)
    assert result.different.to_numpy().any()
    assert not result.different.to_numpy().all()
    assert set(sum(result.cliques, ())) <= set(values)


def test_relabelling_norms_permutes_the_results():
    values = table(decimals=1)
    turned = wilcoxon_holm(values[values.columns[::-1]])
    there = wilcoxon_holm(values)
    pd.testing.assert_frame_equal(turned.p.loc[values.columns, values.columns], there.p)


def test_two_norms_that_are_equal_everywhere_have_p_one():
    result = wilcoxon_holm(table().assign(twin=table()["n0"]))
    assert result.p_single.loc["twin", "n0"] == 1
    assert not result.different.loc["twin", "n0"]


def test_differences_that_are_equal_but_for_rounding_tie():
    # 0.3 - 0.2 and 0.2 - 0.1 differ in floating point; as ties, all signs weigh the same
    values = pd.DataFrame({"a": [0.3, 0.1, 0.4, 0.3], "b": [0.2, 0.2, 0.3, 0.4]})
    assert wilcoxon_holm(values).p_single.loc["a", "b"] == 1


def test_two_norms_are_compared_and_one_is_compared_with_nothing():
    assert wilcoxon_holm(table(n_norms=2)).p.shape == (2, 2)
    alone = wilcoxon_holm(table(n_norms=1))
    assert alone.p.to_numpy().tolist() == [[1]]
    assert alone.cliques == []


def test_without_a_block_p_is_nan_and_nothing_differs():
    result = wilcoxon_holm(table() * np.nan)
    assert result.note == "no block is left that every norm has"
    assert np.isnan(result.p.loc["n0", "n1"])
    assert not result.different.to_numpy().any()
    assert len(result.left_out) == 12


def test_it_says_where_blocks_are_too_few_to_show_anything():
    assert (wilcoxon_holm(table(n_blocks=1)).p == 1).all(axis=None)
    # of five blocks the smallest p is 1/16, of six 1/32: enough for a single pair
    grows = pd.DataFrame({"a": np.arange(6.0), "b": 3 * np.arange(6.0) + 1})
    assert wilcoxon_holm(grows[:5]).note == "too few blocks (5) for any norms to differ at 0.05"
    enough = wilcoxon_holm(grows)
    assert enough.note == ""
    assert enough.different.loc["a", "b"]
