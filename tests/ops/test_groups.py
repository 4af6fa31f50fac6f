"""Statistics by domain, relative eps and known PSDs: fast paths give what the reference gives.

As in test_dispatch.py: on a CUDA device, under Triton's interpreter, or on a processor.
"""

import numpy as np
import pytest
import torch
from backend_outcomes import parameters, signals
from triton_kernels import (
    TOLERANCE,
    draw,
    empty_memory_is_nan,
    gpu,
)

from psdnorm.errors import ArgumentError
from psdnorm.ops import current_groups, current_ids, reference
from psdnorm.ops import dispatch as fused
from psdnorm.ops.groups import _pack
from psdnorm.ops.reference import Spec

IDS = (7, 2, 7, 7, -1, 2)
DOMAIN, CENTERED = {"statistics": "domain"}, {"statistics": "domain", "center": "domain"}
RELATIVE = {"eps_mode": "relative"}


def result(ops, x, spec, ids, kept=None):
    """Statistics, outputs and gradients of all that has one, float64 by the reference."""
    wide = torch.float64 if ops is reference else None
    x = x.detach().to(wide or x.dtype).requires_grad_()
    target, weight, bias = (p.to(wide or p.dtype) for p in parameters(x, spec.filter_size))
    leaves = x, weight.requires_grad_(), bias.requires_grad_()
    grad = draw(*x.shape, seed=4).to(x.dtype)
    groups = None
    with current_ids(ids):
        if spec.is_pooled:
            groups = current_groups(len(x), x.device)
            offset, psd, weights = ops.domain_statistics(x, groups, spec)
        else:
            offset, psd = ops.row_statistics(x, spec)
            weights = reference.row_weights(psd.detach())
    known = {} if ops is reference else {"groups": groups}
    y = ops.normalize(x, offset, psd, target, spec, weight, bias, **known)
    kept = slice(None) if kept is None else kept
    gradients = torch.autograd.grad(y[kept], leaves, grad[kept])
    names = ("offset", "psd", "weights", "y", "dx", "dweight", "dbias")
    found = (offset, psd, weights, y, *gradients)
    return {name: t.detach() for name, t in zip(names, found, strict=True)}


def assert_equal(x, spec, ids=IDS, kept=None):
    with empty_memory_is_nan():
        found = result(fused, x, spec, ids, kept)
    # half precision is rounded once: the same rounded input
    expected = result(reference, x, spec, ids, kept)
    for name, value in expected.items():
        value, got = value.double(), found[name].double()
        if kept is not None and name in ("y", "dx", "psd", "offset", "weights"):
            value, got = value[kept], got[kept]
        error = (got - value).norm() / value.norm().clamp(min=1e-3)
        assert error < TOLERANCE[x.dtype], f"{name} is off by {error:.1e}"


def loud_and_quiet(*shape, dtype=torch.float32):
    x = signals(*shape)
    level = 1 + torch.arange(shape[0], device=x.device).view(-1, 1, 1)
    return (x * level + 0.5 * level).to(dtype)


@pytest.mark.parametrize(
    ("filter_size", "length", "options", "more"),
    [
        (1, 101, (), CENTERED),
        (5, 211, (), DOMAIN),
        (4, 64, ("hann", "zeros"), CENTERED | RELATIVE),
        (3, 64, ("boxcar", "reflect", "segment"), DOMAIN | RELATIVE),
        (5, 90, ("hamming", "circular", "segment"), CENTERED),
        (5, 211, (), RELATIVE),
        (4, 47, ("hann", "zeros", "segment"), RELATIVE),
    ],
)
def test_outputs_and_gradients_match_float64(filter_size, length, options, more):
    assert_equal(loud_and_quiet(6, 2, length), Spec(filter_size, 1e-2, *options, **more))


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # by NumPy, which interprets
@pytest.mark.parametrize("center", ["row", "domain"])
def test_a_broken_row_is_left_out_of_its_domain(center):
    spec = Spec(5, statistics="domain", center=center)
    x = loud_and_quiet(6, 2, 99)
    x[2, 1, 17] = torch.nan  # of domain 7 of rows 0, 2 and 3
    x[4] = torch.inf  # alone in its domain
    target, weight, bias = parameters(x, 5)
    leaf = x.clone().requires_grad_()
    with current_ids(IDS):
        groups = current_groups(6, x.device)
        offset, psd, weights = fused.domain_statistics(leaf, groups, spec)
    y = fused.normalize(leaf, offset, psd, target, spec, weight, bias, groups=groups)
    y.backward(torch.ones_like(y))
    broken = torch.zeros(6, 2, dtype=torch.bool, device=x.device)
    broken[2, 1] = broken[4] = True
    assert torch.equal(y.isfinite().all(-1), ~broken)
    assert torch.equal(leaf.grad.isfinite().all(-1), ~broken)
    assert torch.equal(weights > 0, ~broken)
    # what is left of the domain is what it would be without the row
    rest = [0, 3]
    with current_ids([7, 7]):
        alone = current_groups(2, x.device)
        expected = fused.domain_statistics(x[rest], alone, spec)
    for got, wanted in zip((offset, psd), expected, strict=False):
        torch.testing.assert_close(got[rest, 1], wanted[:, 1], rtol=1e-5, atol=1e-6)
    assert weights.sum(0).round().tolist() == [2, 2]


def test_a_gradient_that_is_nan_stays_in_its_domain():
    spec = Spec(5, statistics="domain", center="domain")
    x = loud_and_quiet(6, 2, 99).requires_grad_()
    target, weight, bias = parameters(x, 5)
    with current_ids(IDS):
        groups = current_groups(6, x.device)
        offset, psd, _ = fused.domain_statistics(x, groups, spec)
    y = fused.normalize(x, offset, psd, target, spec, weight, bias, groups=groups)
    grad = torch.ones_like(y)
    grad[1] = torch.nan
    y.backward(grad)
    assert x.grad.isfinite().flatten(1).all(1).tolist() == [i != 2 for i in IDS]


@pytest.mark.parametrize("statistics", ["row", "domain"])
def test_relative_eps_leaves_rows_without_power_as_they_are(statistics):
    spec = Spec(5, 1e-3, statistics=statistics, eps_mode="relative")
    x = loud_and_quiet(6, 2, 99)
    x[1, 0], x[5, 0], x[4, 1] = 3.0, 3.0, 0.0  # domain 2 in channel 0, domain -1 in channel 1
    target, weight, bias = parameters(x, 5)
    leaf = x.clone().requires_grad_()
    groups = None
    with current_ids(IDS):
        if spec.is_pooled:
            groups = current_groups(6, x.device)
            offset, psd, weights = fused.domain_statistics(leaf, groups, spec)
        else:
            offset, psd = fused.row_statistics(leaf, spec)
            weights = reference.row_weights(psd)
    y = fused.normalize(leaf, offset, psd, target, spec, weight, bias, groups=groups)
    y.backward(draw(*y.shape))
    assert leaf.grad.isfinite().all()
    for row, channel in ((1, 0), (5, 0), (4, 1)):
        torch.testing.assert_close(y[row, channel], bias[channel].expand(99), rtol=0, atol=1e-6)
        assert weights[row, channel] == 0
    assert (weights > 0).sum() == 9


@pytest.mark.parametrize("mean", [None, 0.7])
def test_a_known_psd_is_a_constant(mean):
    x = loud_and_quiet(3, 2, 204)
    target, weight, bias = parameters(x, 5)
    psd = 0.5 + draw(2, 3, seed=6).square()
    mean = None if mean is None else torch.tensor([mean, -mean], device=x.device)
    outcomes = []
    for backend in ("fused", "reference"):
        wide = torch.float32 if backend == "fused" else torch.float64
        given = [t.detach().to(wide).requires_grad_() for t in (x, weight, bias)]
        known = (None if mean is None else mean.to(wide), psd.to(wide), target.to(wide))
        y = fused.normalize_with(given[0], *known, Spec(5), *given[1:], backend)
        gradients = torch.autograd.grad(y, given, draw(*x.shape, seed=4).to(wide))
        outcomes.append([t.double() for t in (y, *gradients)])
    for got, wanted in zip(*outcomes, strict=True):
        assert (got - wanted).norm() / wanted.norm() < 1e-5


def test_pooling_gives_the_same_bits_twice():
    x, spec = signals(64, 3, 301), Spec(5, statistics="domain", center="domain")
    ids = np.arange(64) % 5
    first, again = result(fused, x, spec, ids), result(fused, x, spec, ids)
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_only_the_grouping_matters_not_the_names():
    x, spec = signals(6, 2, 99), Spec(5, statistics="domain")
    expected = result(fused, x, spec, IDS)
    names = [f"night {i}" for i in IDS]
    for ids in (names, torch.tensor(IDS), np.asarray(IDS, dtype=np.int8), list(np.array(names))):
        found = result(fused, x, spec, ids)
        # strings are sorted otherwise, so sums may round otherwise
        torch.testing.assert_close(found["dx"], expected["dx"])


def test_the_operators_pass_torchs_own_checks():
    spec = Spec(4, 1e-3, statistics="domain", center="domain")
    x = signals(4, 2, 32)
    target, weight, bias = parameters(x, 4)
    packed = torch.from_numpy(_pack(np.array([0, 1, 1, 0]))).to(x.device)
    statistics = torch.ops.psdnorm.domain_statistics(x, packed, 0, *spec)
    torch.library.opcheck(torch.ops.psdnorm.domain_statistics, (x, packed, 0, *spec))
    leaves = [t.clone().requires_grad_() for t in (x, weight, bias)]
    arguments = (*leaves, target, *statistics[:2], packed, 0, *spec)
    torch.library.opcheck(torch.ops.psdnorm.normalize, arguments)
    fixed = spec._replace(statistics="fixed", center="row")
    arguments = (*leaves, target, torch.ones(2, 3, device=x.device), *fixed)
    torch.library.opcheck(torch.ops.psdnorm.measure_and_normalize, arguments)


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (3, "found int"),
        ("abc", "found str"),
        ([], "shape (0,)"),
        ([[1, 2]], "shape (1, 2)"),
        ([1.5, 2.5], "found float64"),
        ([1, "a"], "all integers or all strings"),
        ([[1], [2, 3]], "several sizes"),
    ],
)
def test_ids_that_name_no_domains_are_one_sentence(ids, found):
    with pytest.raises(ArgumentError) as error, current_ids(ids):
        pass
    assert found in str(error.value)


class TestOnTheDevice:
    pytestmark = gpu

    @pytest.mark.parametrize("more", [DOMAIN, CENTERED, CENTERED | RELATIVE, RELATIVE])
    @pytest.mark.parametrize("detrend", reference.DETRENDS)
    @pytest.mark.parametrize("filter_size", [1, 2, 5, 8, 17])
    def test_filter_sizes(self, filter_size, detrend, more):
        assert_equal(loud_and_quiet(6, 5, 4999), Spec(filter_size, 1e-2, detrend=detrend, **more))

    @pytest.mark.parametrize("more", [DOMAIN, CENTERED, DOMAIN | RELATIVE, RELATIVE])
    @pytest.mark.parametrize("padding_mode", reference.PADDING_MODES)
    @pytest.mark.parametrize("window", reference.WINDOWS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_every_option(self, dtype, window, padding_mode, more):
        x = loud_and_quiet(6, 5, 2477, dtype=dtype)
        assert_equal(x, Spec(5, 1e-2, window, padding_mode, **more))

    @pytest.mark.parametrize("n_rows", [1, 2, 65, 1500])
    def test_any_number_of_rows_and_domains(self, n_rows):
        ids = torch.randperm(n_rows) // 3
        x = loud_and_quiet(n_rows, 3, 130) / n_rows
        assert_equal(x, Spec(5, 1e-2, **CENTERED), ids)

    @pytest.mark.parametrize("length", [2048, 13000, 105000])
    @pytest.mark.parametrize("dtype", TOLERANCE)
    def test_known_psds_where_rows_stay_on_the_chip(self, length, dtype):
        x = signals(64, 6, length, dtype=dtype)
        target, weight, bias = parameters(x, 5)
        psd = 0.5 + draw(6, 3, seed=6).square()
        wide = (t.double() for t in (psd, target))
        y = fused.normalize_with(x, None, psd, target, Spec(5), weight, bias)
        expected = fused.normalize_with(
            x.double(), None, *wide, Spec(5), weight.double(), bias.double(), "reference"
        )
        assert (y.double() - expected).norm() / expected.norm() < TOLERANCE[dtype]
