"""Batches of several domains with several windows each."""

import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import psdnorm
from psdnorm import DomainBatchSampler, PSDNorm
from psdnorm.errors import ArgumentError

EVEN = [0] * 12 + [1] * 12 + [2] * 12 + [3] * 12
# per domain: a rest, fewer windows than a batch takes, one domain larger than all others together
SIZES = [[12, 12, 12, 12], [13, 9, 10, 7], [2, 9, 8, 1], [40, 3, 8, 5], [100, 5, 5], [1, 1, 1]]


def ids_of(sizes):
    ids = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(0).permutation(ids)


def composition(ids, batch):
    """How many windows of each domain are in a batch."""
    return Counter(np.asarray(ids)[batch].tolist())


def visits(sampler):
    return Counter(window for batch in sampler for window in batch)


@pytest.mark.parametrize("drop_last", [False, True])
def test_an_epoch_visits_every_window_once_where_all_divides(drop_last):
    sampler = DomainBatchSampler(EVEN, 2, 4, drop_last=drop_last)
    assert len(sampler) == 6
    assert visits(sampler) == dict.fromkeys(range(48), 1)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_every_batch_has_so_many_domains_with_so_many_windows(sizes, wanted):
    ids = ids_of(sizes)
    sampler = DomainBatchSampler(ids, wanted, 4)
    for _ in range(3):
        batches = list(sampler)
        assert len(batches) == len(sampler)
        assert all(list(composition(ids, b).values()) == [4] * wanted for b in batches)


def test_windows_of_a_domain_lie_together_in_a_batch():
    for batch in DomainBatchSampler(EVEN, 3, 4):
        domains = np.asarray(EVEN)[batch].reshape(3, 4)
        assert (domains == domains[:, :1]).all()


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_an_epoch_leaves_no_window_out(sizes, wanted):
    sampler = DomainBatchSampler(ids_of(sizes), wanted, 4)
    for _ in range(3):
        assert visits(sampler).keys() == set(range(sum(sizes)))


@pytest.mark.parametrize("sizes", [[13, 9, 10, 7], [40, 4, 8, 5], [100, 5, 5], [4, 4, 4]])
@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_with_drop_last_no_window_comes_twice_and_no_batch_lacks_one(sizes, wanted):
    ids = ids_of(sizes)
    sampler = DomainBatchSampler(ids, wanted, 4, drop_last=True)
    for _ in range(3):
        batches = list(sampler)
        assert len(batches) == len(sampler) > 0
        assert all(list(composition(ids, b).values()) == [4] * wanted for b in batches)
        assert max(Counter(np.concatenate(batches).tolist()).values()) == 1


def test_with_drop_last_as_many_batches_are_made_as_can_be():
    # groups of 4: 10, 1, 2, 1
    assert len(DomainBatchSampler(ids_of([40, 4, 8, 5]), 2, 4, drop_last=True)) == 4
    assert len(DomainBatchSampler(ids_of([40, 4, 8, 5]), 3, 4, drop_last=True)) == 2
    assert len(DomainBatchSampler(ids_of([40, 4, 8, 5]), 4, 4, drop_last=True)) == 1


def test_with_drop_last_other_windows_are_left_out_in_other_epochs():
    sampler = DomainBatchSampler(ids_of([13, 9, 10, 7]), 2, 4, drop_last=True)
    together = Counter()
    for _ in range(30):
        together.update(visits(sampler))
    assert together.keys() == set(range(39))


def test_few_windows_come_twice_where_domains_are_nearly_even():
    sizes = [170, 181, 166, 175, 190, 158]
    seen = visits(DomainBatchSampler(ids_of(sizes), 3, 16))
    assert sum(seen.values()) < 1.1 * sum(sizes)
    assert max(seen.values()) <= 3


def test_the_last_windows_of_a_domain_are_filled_up_with_others_of_it():
    (batch,) = DomainBatchSampler([0] * 5, 1, 8)
    assert sorted(Counter(batch).values()) == [1, 1, 2, 2, 2]
    first, second = DomainBatchSampler([0] * 5, 1, 4)
    assert len(set(first)) == len(set(second)) == 4


def test_small_domains_are_visited_again_and_equally_often():
    ids = ids_of([400, 40, 20, 4])
    found = Counter()
    for batch in DomainBatchSampler(ids, 2, 4):
        found.update(composition(ids, batch).keys())
    assert found[0] == 100
    assert sorted(found[d] for d in (1, 2, 3)) == [33, 33, 34]


def test_small_domains_are_spread_over_the_epoch():
    ids = ids_of([200, 200, 200, 20])
    places = [i for i, b in enumerate(DomainBatchSampler(ids, 2, 4)) if 3 in composition(ids, b)]
    assert len(places) in (5, 6)  # 155 groups in 78 batches
    assert min(places) < 40
    assert max(places) - min(places) > 10


def test_pairs_of_domains_meet_in_all_combinations():
    ids = ids_of([60] * 5)
    sampler = DomainBatchSampler(ids, 2, 4)
    met = {frozenset(composition(ids, batch)) for _ in range(5) for batch in sampler}
    assert len(met) == 10


def test_every_epoch_has_an_order_of_its_own():
    sampler = DomainBatchSampler(EVEN, 2, 4)
    first, second = list(sampler), list(sampler)
    assert first != second
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}


def test_the_order_depends_on_seed_and_epoch_alone():
    a, b = (DomainBatchSampler(ids_of([13, 9, 10, 7]), 2, 4, seed=3) for _ in range(2))
    epochs = [list(a) for _ in range(3)]
    torch.manual_seed(1)
    b.set_epoch(2)
    assert list(b) == epochs[2]
    b.set_epoch(0)
    assert [list(b) for _ in range(3)] == epochs
    assert list(DomainBatchSampler(ids_of([13, 9, 10, 7]), 2, 4, seed=4)) != epochs[0]


def test_two_iterations_at_a_time_do_not_disturb_each_other():
    a, b = DomainBatchSampler(EVEN, 2, 4), DomainBatchSampler(EVEN, 2, 4)
    mixed = list(zip(iter(a), iter(a), strict=True))
    assert [first for first, _ in mixed] == list(b)
    assert [second for _, second in mixed] == list(b)


@pytest.mark.parametrize(
    "ids",
    [
        torch.tensor(EVEN),
        np.asarray(EVEN),
        [f"subject {i}" for i in EVEN],
        np.asarray([f"subject {i}" for i in EVEN]),
        iter(EVEN),
    ],
    ids=["tensor", "array", "strings", "array of strings", "iterator"],
)
def test_ids_may_be_what_domains_takes(ids):
    sampler = DomainBatchSampler(ids, 2, 4)
    assert all(sorted(composition(EVEN, batch).values()) == [4, 4] for batch in sampler)


def test_a_sampler_is_copied_with_its_place():
    sampler = DomainBatchSampler(EVEN, 2, 4)
    list(sampler)
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)


def test_a_loader_with_workers_feeds_a_layer_by_domain():
    ids = [f"subject {i}" for i in EVEN]
    x = torch.randn(48, 2, 64)
    windows = [(x[i], i, ids[i]) for i in range(48)]
    sampler = DomainBatchSampler(ids, 3, 4)
    loader = DataLoader(windows, batch_sampler=sampler, num_workers=2, persistent_workers=True)
    layer = PSDNorm(2, statistics="domain")
    expected, orders = DomainBatchSampler(ids, 3, 4), []
    for _ in range(2):
        assert len(loader) == 4
        batches = list(loader)
        orders.append([index.tolist() for _, index, _ in batches])
        assert orders[-1] == list(expected)
        for batch, _, names in batches:
            with psdnorm.domains(names):
                assert layer(batch).shape == (12, 2, 64)
    assert orders[0] != orders[1]
    assert layer.num_batches_tracked.tolist() == [8, 8]


def test_integers_come_as_a_tensor():
    windows = TensorDataset(torch.randn(48, 1, 64), torch.tensor(EVEN))
    for _, ids in DataLoader(windows, batch_sampler=DomainBatchSampler(EVEN, 2, 4)):
        with psdnorm.domains(ids):
            pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((EVEN, 5, 4), "domains_per_batch=5, but ids name 4 domains"),
        ((EVEN, 0, 4), "domains_per_batch must be a whole number from 1 on, found 0"),
        ((EVEN, 2, 1.5), "windows_per_domain must be a whole number from 1 on, found 1.5"),
        (([], 1, 1), "ids must be one integer or string per sample"),
        (([0.5, 1.5], 1, 1), "ids must be one integer or string per sample, found float64"),
        ((torch.zeros(3, 2, dtype=torch.int64), 1, 1), "found an array of shape (3, 2)"),
        ((7, 1, 1), "ids must be one integer or string per sample, found int"),
    ],
)
def test_an_error_says_what_was_found(arguments, message):
    with pytest.raises(ArgumentError) as caught:
        DomainBatchSampler(*arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize("ids", [["a"] * 9 + ["b"] * 3, np.asarray(["a"] * 9 + ["b"] * 3)])
def test_a_domain_that_would_never_be_drawn_is_named(ids):
    with pytest.raises(ArgumentError) as caught:
        DomainBatchSampler(ids, 1, 4, drop_last=True)
    assert str(caught.value) == (
        "domain 'b' has 3 windows, fewer than windows_per_domain=4: with drop_last=True it would "
        "never be drawn"
    )


@pytest.mark.parametrize("value", [-1, 0.0, "3", True])
def test_seeds_and_epochs_are_whole_numbers_from_zero(value):
    with pytest.raises(ArgumentError, match=r"^seed must be a whole number from"):
        DomainBatchSampler(EVEN, 2, 4, seed=value)
    with pytest.raises(ArgumentError, match=r"^epoch must be a whole number from"):
        DomainBatchSampler(EVEN, 2, 4).set_epoch(value)
