"""Friedman and Nemenyi, against SciPy, scikit-posthocs and Demšar's example."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from psdnorm.errors import ArgumentError
from psdnorm.evaluation.statistics import friedman, nemenyi


def table(n_blocks=12, n_norms=5, seed=0, decimals=6):
    """Scores of which later norms are better; few decimals make ties."""
    generator = np.random.default_rng(seed)
    scores = generator.normal(0.7, 0.1, (n_blocks, n_norms)) + 0.03 * np.arange(n_norms)
    return pd.DataFrame(scores.round(decimals), columns=[f"n{k}" for k in range(n_norms)])


CASES = [
    pytest.param(table(), id="no ties"),
    pytest.param(table(decimals=1), id="ties"),
    pytest.param(table(n_blocks=2, n_norms=3), id="few"),
    pytest.param(table(n_blocks=3000, n_norms=10, decimals=2), id="many"),
]


@pytest.mark.parametrize("values", CASES)
def test_friedman_is_scipys(values):
    result = friedman(values)
    expected = stats.friedmanchisquare(*values.to_numpy().T)
    assert result.statistic == pytest.approx(expected.statistic, rel=1e-9)
    assert result.p == pytest.approx(expected.pvalue, rel=1e-8)


@pytest.mark.parametrize("values", CASES)
def test_nemenyi_is_that_of_scikit_posthocs(values):
    posthocs = pytest.importorskip("scikit_posthocs")
    expected = posthocs.posthoc_nemenyi_friedman(values)
    np.testing.assert_allclose(nemenyi(values).p, expected, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("values", CASES)
@pytest.mark.parametrize("alpha", [0.05, 0.1])
def test_norms_differ_where_mean_ranks_are_a_critical_difference_apart(values, alpha):
    result = nemenyi(values, alpha)
    ranks = result.mean_ranks.to_numpy()
    apart = np.abs(ranks[:, None] - ranks) >= result.critical_difference
    assert (result.different.to_numpy() == apart).all()


@pytest.mark.parametrize(("n_norms", "q"), [(3, 2.343), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_that_of_demsars_table(n_norms, q):
    result = nemenyi(table(n_blocks=30, n_norms=n_norms))
    expected = q * np.sqrt(n_norms * (n_norms + 1) / (6 * 30))
    assert result.critical_difference == pytest.approx(expected, abs=5e-4)


def test_the_highest_score_has_rank_one_and_ties_share_the_mean():
    values = pd.DataFrame({"psd": [0.9, 0.8], "batch": [0.5, 0.8], "layer": [0.7, 0.1]})
    assert friedman(values).mean_ranks.to_dict() == {"psd": 1.25, "batch": 2.25, "layer": 2.5}


def test_relabelling_norms_permutes_the_results():
    values = table(decimals=1)
    turned = values[values.columns[::-1]]
    assert friedman(turned).p == pytest.approx(friedman(values).p)
    pd.testing.assert_frame_equal(
        nemenyi(turned).p.loc[values.columns, values.columns], nemenyi(values).p
    )


def test_a_constant_added_to_a_block_and_another_order_of_blocks_change_nothing():
    values = table(decimals=1)
    shifted = values.add(np.linspace(-1, 1, len(values)), axis=0).sample(frac=1, random_state=0)
    assert friedman(shifted).statistic == pytest.approx(friedman(values).statistic)
    pd.testing.assert_series_equal(friedman(shifted).mean_ranks, friedman(values).mean_ranks)


def test_blocks_with_a_nan_are_left_out():
    values = table()
    with_gaps = values.copy()
    with_gaps.iloc[3, 1] = with_gaps.iloc[7, 0] = np.nan
    result = friedman(with_gaps)
    assert result.left_out == (3, 7)
    assert result.n_blocks == len(values) - 2
    assert result.p == friedman(values.drop(index=[3, 7])).p


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (table(n_norms=2), "three norms on, found 2"),
        (table(n_norms=1), "three norms on, found 1"),
        (table(n_blocks=1), "two blocks on, found 1"),
        (table() * np.nan, "two blocks on, found 0"),
    ],
)
def test_where_ranks_cannot_be_tested_the_answer_is_nan_with_a_reason(values, why):
    for result in (friedman(values), nemenyi(values)):
        assert why in result.note
    assert np.isnan(friedman(values).statistic)
    assert np.isnan(friedman(values).p)
    compared = nemenyi(values)
    assert np.isnan(compared.critical_difference)
    assert not compared.different.to_numpy().any()


def test_where_everything_ties_nothing_differs():
    values = pd.DataFrame(np.full((4, 3), 0.5), columns=list("abc"))
    assert np.isnan(friedman(values).p)
    assert friedman(values).note == "all norms tie in every block"
    assert (nemenyi(values).p == 1).all(axis=None)
    assert nemenyi(values).cliques == [("a", "b", "c")]


def test_nemenyi_says_where_blocks_are_too_few_to_show_anything():
    values = pd.DataFrame(np.tile(np.arange(5.0), (2, 1)), columns=list("abcde"))
    assert nemenyi(values).note == "too few blocks (2) for any norms to differ at 0.05"
    enough = nemenyi(pd.concat([values] * 4, ignore_index=True))
    assert enough.note == ""
    assert enough.different.loc["a", "e"]


@pytest.mark.parametrize("alpha", [0, 1, 5, np.nan])
def test_an_alpha_outside_0_and_1_is_rejected(alpha):
    with pytest.raises(ArgumentError, match=r"alpha is .*, expected a number between 0 and 1"):
        nemenyi(table(), alpha)
