"""Splits are by subject, pure functions of the seed, and nested."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from properties import given, st

from psdnorm.batches import balanced, class_weights, leave_one_dataset_out, split_subjects
from psdnorm.errors import ArgumentError


def index_of(*nights):
    columns = ["cohort", "subject", "family"]
    index = pd.DataFrame(nights, columns=columns, dtype=object)
    return index.assign(recording=[f"r{i}" for i in range(len(index))])


def cohort(name, n_subjects, n_nights=1, family_size=None):
    return [
        (name, str(s), None if family_size is None else f"f{s // family_size}")
        for s in range(n_subjects)
        for _ in range(n_nights)
    ]


def subjects(index):
    return set(zip(index["cohort"], index["subject"], strict=True))


def families(index):
    known = index.dropna(subset="family")
    return set(zip(known["cohort"], known["family"], strict=True))


indexes = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 30).map(str),
    ),
    min_size=1,
    max_size=60,
).map(
    # a third of the subjects have a family, of up to five
    lambda pairs: index_of(
        *((c, s, f"f{int(s) // 15}" if int(s) % 3 == 0 else None) for c, s in pairs)
    )
)


@given(indexes, st.integers(0, 5), st.floats(0.05, 0.95))
def test_no_subject_and_no_family_is_on_both_sides_and_no_night_is_lost(index, seed, fraction):
    train, validation = split_subjects(index, fraction, seed=seed)
    assert not subjects(train) & subjects(validation)
    assert not families(train) & families(validation)
    assert sorted([*train["recording"], *validation["recording"]]) == sorted(index["recording"])


@given(indexes, st.integers(1, 20), st.integers(1, 20), st.integers(0, 5))
def test_balanced_is_nested_and_so_are_its_two_sides(index, few, many, seed):
    few, many = sorted((few, many))
    small, large = (balanced(index, n, seed=seed) for n in (few, many))
    for name in "abc":
        everyone = index[index["cohort"] == name]["subject"].nunique()
        assert small[small["cohort"] == name]["subject"].nunique() == min(few, everyone)
    assert set(small["recording"]) <= set(large["recording"])
    largest = index.groupby(["cohort", "family"])["subject"].nunique().max()
    if few >= (1 if np.isnan(largest) else largest) + 2:
        for side, wider in zip(
            split_subjects(small, seed=seed), split_subjects(large, seed=seed), strict=True
        ):
            assert set(side["recording"]) <= set(wider["recording"])


def test_below_the_third_subject_the_last_one_validates_and_trains_later():
    index = index_of(*cohort("a", 20))
    _, of_two = split_subjects(balanced(index, 2))
    train_of_three, of_three = split_subjects(balanced(index, 3))
    assert len(of_two) == len(of_three) == 1
    assert subjects(of_two) < subjects(train_of_three)


def test_a_cohort_of_one_subject_or_one_family_only_trains():
    index = index_of(*cohort("one", 1, 3), *cohort("kin", 5, 1, 5), *cohort("many", 10))
    train, validation = split_subjects(index)
    assert set(train["cohort"]) == {"one", "kin", "many"}
    assert set(validation["cohort"]) == {"many"}


def test_indexes_that_were_put_together_lose_no_night():
    index = pd.concat([index_of(*cohort("a", 10)), index_of(*cohort("b", 10))])
    train, validation = split_subjects(index)
    assert (len(train), len(validation)) == (16, 4)
    split = leave_one_dataset_out(index, "a", n_subjects=5)
    assert [len(part) for part in split] == [4, 1, 10]


@pytest.mark.parametrize("family_size", [None, 3])
def test_who_trains_at_40_trains_at_100_and_who_validates_validates(family_size):
    index = index_of(*cohort("a", 300, 2, family_size), *cohort("b", 70), *cohort("t", 9))
    splits = [leave_one_dataset_out(index, "t", n_subjects=n) for n in (40, 100, None)]
    for small, large in itertools.pairwise(splits):
        assert subjects(small.train) < subjects(large.train)
        assert subjects(small.validation) < subjects(large.validation)


def test_one_subject_in_five_validates_within_each_dataset():
    index = index_of(*cohort("a", 100, 2), *cohort("b", 40), *cohort("t", 10, 3))
    split = leave_one_dataset_out(index, "t", seed=1)
    assert split.train.groupby("cohort")["subject"].nunique().to_dict() == {"a": 80, "b": 32}
    assert split.validation.groupby("cohort")["subject"].nunique().to_dict() == {"a": 20, "b": 8}
    assert subjects(split.test) == {("t", str(i)) for i in range(10)}
    assert len(split.test) == 30


def test_families_of_every_size_validate_as_often_as_others():
    nights = [("a", str(s), f"f{s // 5}" if s < 500 else None) for s in range(1000)]
    _, validation = split_subjects(index_of(*nights))
    in_family = validation["family"].notna().mean()
    assert 0.18 < len(validation) / 1000 < 0.22
    assert 0.35 < in_family < 0.65


def test_subjects_of_one_name_in_two_cohorts_are_two():
    index = index_of(("a", "1", None), ("a", "2", None), ("b", "1", None), ("b", "2", None))
    train, validation = split_subjects(index)
    assert len(train) == len(validation) == 2
    assert set(train["cohort"]) == set(validation["cohort"]) == {"a", "b"}


def test_a_family_that_one_night_forgot_is_kept_together():
    nights = [("a", str(s), "f" if s < 2 else None) for s in range(10)] + [("a", "0", None)]
    for seed in range(20):
        train, _ = split_subjects(index_of(*nights), seed=seed)
        assert len({"0", "1"} & set(train["subject"])) != 1


def test_seeds_differ_and_the_order_of_rows_does_not_matter():
    index = index_of(*cohort("a", 50))
    _, validation = split_subjects(index, seed=0)
    _, shuffled = split_subjects(index.sample(frac=1, random_state=3), seed=0)
    _, other = split_subjects(index, seed=1)
    assert subjects(validation) == subjects(shuffled) != subjects(other)


def test_the_split_is_the_same_on_every_machine():
    _, validation = split_subjects(index_of(*cohort("abc", 20)))
    assert sorted(validation["subject"]) == ["1", "11", "13", "18"]


def test_weights_are_n_over_five_n_c_and_0_for_an_absent_stage():
    index = pd.DataFrame({"W": [3, 1], "N1": [1, 1], "N2": [8, 2], "N3": [4, 0], "REM": [0, 0]})
    expected = torch.tensor([20 / 20, 20 / 10, 20 / 50, 20 / 20, 0])
    assert torch.equal(class_weights(index), expected)
    assert torch.equal(class_weights(index * 0), torch.zeros(5))


def test_weights_weigh_every_stage_alike():
    counts = np.array([30, 5, 50, 20, 25])
    index = pd.DataFrame([counts], columns=["W", "N1", "N2", "N3", "REM"])
    weighted = class_weights(index).numpy() * counts
    assert np.allclose(weighted, counts.sum() / 5)


def test_what_cannot_be_split_is_refused():
    index = index_of(*cohort("a", 3), ("b", "1", "f"), ("b", "1", "g"))
    with pytest.raises(ArgumentError, match=r"^held_out is 'c', expected one of a, b$"):
        leave_one_dataset_out(index, "c")
    with pytest.raises(ArgumentError, match=r"^subject '1' of b is of the families 'f' and 'g'"):
        split_subjects(index)
    with pytest.raises(ArgumentError, match=r"^fraction is 1, expected"):
        split_subjects(index, 1)
    with pytest.raises(ArgumentError, match=r"^n_subjects is 0, expected"):
        balanced(index, 0)
