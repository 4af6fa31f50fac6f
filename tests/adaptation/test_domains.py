"""What psdnorm.adapt promises, and what calibrate and convert_norm do for statistics by domain."""

import copy
import importlib
import pkgutil
import threading

import numpy as np
import pytest
import torch
from networks import Disordered, batches, buffers, network, signals, unchanged
from torch import nn

import psdnorm
from psdnorm import PSDNorm, adapt, calibrate, convert_norm, domains
from psdnorm.errors import ArgumentError, ConversionError
from psdnorm.models import CNNTransformer, USleep, from_pretrained

ROWS = torch.cat([(n + 1) * signals(2, 300, seed=n) + 3 * n for n in range(5)])  # of one domain
UNEVEN = (1, 6, 3)  # rows of each batch
WINDOW = 7 * signals(1, 300, seed=9) - 4
by_center = pytest.mark.parametrize("center", ["row", "domain"])


def one_norm(filter_size=5, **options):
    """A layer with a barycenter that is not white."""
    model = nn.Sequential(PSDNorm(2, filter_size, statistics="domain", **options))
    with domains([0, 0, 1, 1]):
        model(signals(4, 300, seed=20))
    return model.eval()


def deep(center="row", **options):
    """Convolutions, each with a batch norm and a PSDNorm behind it, as if trained."""
    torch.manual_seed(0)
    layers = []
    for depth, size in enumerate((5, 2, 1)):
        norm = PSDNorm(3, size, statistics="domain", center=center, affine=True, **options)
        layers += [nn.Conv1d(3 if depth else 2, 3, 5), nn.BatchNorm1d(3), nn.ELU(), norm]
    model = nn.Sequential(*layers)
    for step in range(4):
        with domains([0, 0, 1, 2]):
            model(signals(4, 300, seed=20 + step))
    return model.eval()


def inside(model, data, x=WINDOW, **options):
    with torch.no_grad(), adapt(model, data, **options):
        return model(x)


def close(found, expected, tolerance=1e-5):
    return (found - expected).norm() < tolerance * expected.norm()


class Backwards(nn.Module):
    """Registered last to first, called first to last."""

    def __init__(self):
        super().__init__()
        self.third, self.second, self.first = (
            PSDNorm(2, size, statistics="domain") for size in (1, 3, 5)
        )

    def forward(self, x):
        return self.third((self.second(self.first(x).tanh()) + 1).relu())


class Twice(nn.Module):
    """One layer at two places."""

    def __init__(self):
        super().__init__()
        self.norm = PSDNorm(2, 5, statistics="domain")

    def forward(self, x):
        return self.norm(self.norm(x).square())


# ─── what batches give ───


@by_center
@pytest.mark.parametrize("batch_norms", [False, True], ids=["psd-norms", "batch-norms-too"])
@pytest.mark.parametrize("options", [{}, {"target_power": "unit", "eps_mode": "relative"}], ids=str)
def test_several_batches_give_what_one_with_all_rows_gives(options, batch_norms, center):
    model = deep(center, **options)
    expected = inside(model, [ROWS], batch_norms=batch_norms)
    assert close(inside(model, ROWS.split(UNEVEN), batch_norms=batch_norms), expected)
    assert close(inside(model, ROWS.flip(0).split(1), batch_norms=batch_norms), expected)
    assert not close(expected, inside(model, []), 0.1)


@by_center
@pytest.mark.parametrize("detrend", ["row", "segment"])
@pytest.mark.parametrize("window", ["boxcar", "hann"])
def test_adapting_is_pooling_all_rows_as_one_domain(window, detrend, center):
    model = deep(center, window=window, detrend=detrend)
    with torch.no_grad(), domains(["night"] * len(ROWS)):
        expected = model(ROWS)
    assert close(inside(model, ROWS.split(UNEVEN), ROWS), expected)


def test_adapted_batch_norms_are_those_in_training_mode():
    model = deep()
    reference = copy.deepcopy(model)
    for norm in reference:
        if isinstance(norm, nn.BatchNorm1d):
            norm.train()
    with torch.no_grad(), domains([0] * len(ROWS)):
        expected = reference(ROWS)
    assert close(inside(model, ROWS.split(UNEVEN), ROWS, batch_norms=True), expected, 1e-3)


@by_center
def test_a_large_mean_costs_no_precision(center):
    model = one_norm(center=center)
    rows = ROWS - ROWS.mean()
    expected = inside(model, rows.split(UNEVEN), rows)
    offset = inside(model, (rows + 1e4).split(UNEVEN), rows + 1e4)
    assert close(offset, expected, 1e-3)  # x itself is rounded


@pytest.mark.parametrize("build", [Backwards, Twice])
def test_layers_are_adapted_in_the_order_of_their_calls(build):
    model = build().eval()
    expected = inside(model, [ROWS])
    assert close(inside(model, ROWS.split(UNEVEN)), expected)
    if build is Backwards:  # a layer called twice pools both of its inputs
        with torch.no_grad(), domains([0] * len(ROWS)):
            assert close(inside(model, [ROWS], ROWS), model(ROWS))


def test_statistics_of_a_layer_called_twice_are_those_of_both_inputs():
    model = Twice().eval()
    seen = []
    model.norm.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        with adapt(model, []):
            model(ROWS)
        both = nn.Sequential(copy.deepcopy(model.norm))
        expected = inside(both, [torch.cat(seen)])
    with adapt(model, ROWS.split(UNEVEN)):
        assert close(model.norm(WINDOW), expected)


def test_without_a_batch_the_barycenter_stands_for_the_domain():
    model = one_norm()
    centred = WINDOW - WINDOW.mean(-1, keepdim=True)
    for nothing in ([], [WINDOW[:0]], [(WINDOW[:0], "label")]):
        torch.testing.assert_close(inside(model, nothing), centred, rtol=1e-4, atol=1e-4)
    untrained = nn.Sequential(PSDNorm(2, 5, statistics="domain", target="white")).eval()
    torch.testing.assert_close(inside(untrained, []), centred, rtol=1e-4, atol=1e-4)


def test_empty_batches_add_nothing():
    model = deep()
    data = [ROWS[:0], ROWS[:4], ROWS[:0], ROWS[4:]]
    torch.testing.assert_close(
        inside(model, data, batch_norms=True), inside(model, [ROWS[:4], ROWS[4:]], batch_norms=True)
    )


def test_what_a_loader_gives_is_adapted_to():
    model = deep()
    data = torch.utils.data.TensorDataset(ROWS, torch.zeros(len(ROWS)))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    assert close(inside(model, loader), inside(model, [ROWS]))
    torch.testing.assert_close(inside(model, [(ROWS, 1), [ROWS, "x"]]), inside(model, [ROWS, ROWS]))


@by_center
def test_broken_rows_are_left_out(center):
    rows = torch.cat([ROWS, ROWS[:3]])
    rows[10, 0, 5], rows[11], rows[12, :, 7] = torch.nan, torch.inf, -torch.inf
    model = deep(center)
    for batch_norms in (False, True):
        expected = inside(model, [ROWS], batch_norms=batch_norms)
        assert close(inside(model, rows.split((11, 2)), batch_norms=batch_norms), expected)


def test_a_channel_without_a_valid_row_keeps_the_barycenter():
    rows = ROWS.clone()
    rows[:, 1] = torch.nan
    model = one_norm()
    adapted, cold = inside(model, [rows]), inside(model, [])
    torch.testing.assert_close(adapted[:, 1], cold[:, 1])
    torch.testing.assert_close(adapted[:, 0], inside(model, [ROWS])[:, 0])


@by_center
def test_a_domain_without_power_comes_out_as_zeros(center):
    model = one_norm(center=center, eps_mode="relative")
    flat = torch.full((3, 2, 300), 0.1)
    assert (inside(model, [flat], flat).abs() < 1e-6).all()


@by_center
def test_autocast_around_changes_no_statistics(center):
    model, rows = one_norm(center=center), ROWS + 300
    expected = inside(model, [rows], rows)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(inside(model, [rows], rows), expected)


def test_statistics_stay_exact_in_half_precision():
    model = one_norm()
    with adapt(model, [200 * ROWS]):  # a power beyond float16
        expected = model(200 * WINDOW)
        y = model.half()((200 * WINDOW).half())
    assert close(y.float(), expected, 1e-2)


@by_center
def test_single_windows_are_filtered_as_in_their_batch(center):
    model = deep(center)
    with torch.no_grad(), adapt(model, [ROWS]):
        y = model(ROWS)
        for row, expected in zip(ROWS.split(1), y.split(1), strict=True):
            assert close(model(row), expected)
        with domains(range(10)):  # the domain is known
            torch.testing.assert_close(model(ROWS), y)


def test_gradients_flow_through_fixed_filters():
    model = one_norm()
    x = WINDOW.clone().requires_grad_()
    with adapt(model, [ROWS]):
        y = model(x)
    y.backward(WINDOW)  # after the end
    with adapt(model, [ROWS]):  # which are linear
        step = model(WINDOW + WINDOW.flip(-1)) - model(WINDOW)
    torch.testing.assert_close(
        (x.grad * WINDOW.flip(-1)).sum(), (WINDOW * step).sum(), rtol=1e-4, atol=1
    )


# ─── streaming ───


@by_center
def test_streamed_windows_add_up_to_what_adapting_to_all_gives(center):
    model = one_norm(center=center)
    expected = inside(model, [ROWS], ROWS[-1:])
    with torch.no_grad(), adapt(model, [], streaming=True):
        streamed = [model(x) for x in ROWS.split(1)]
        assert close(streamed[-1], expected)
    with torch.no_grad(), adapt(model, [ROWS[:6]], streaming=True):
        for x in ROWS[6:].split(2):
            y = model(x)
    assert close(y[-1:], expected)
    with torch.no_grad(), domains([0]):
        assert close(streamed[0], model(ROWS[:1]))


def test_streaming_reaches_batch_norms_if_asked():
    model = deep()
    before = buffers(model)
    with torch.no_grad():
        for batch_norms in (True, False):
            with adapt(model, [], streaming=True, batch_norms=batch_norms):
                model(ROWS)
                mean = model[1].running_mean.clone()
            if batch_norms:
                torch.testing.assert_close(mean, model[0](ROWS).mean((0, 2)), rtol=1e-4, atol=1e-4)
            else:
                assert torch.equal(mean, before["1.running_mean"])
    assert unchanged(model, before)
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_without_streaming_windows_add_nothing():
    model = one_norm()
    with torch.no_grad(), adapt(model, [ROWS]):
        before = model(WINDOW)
        model(100 * ROWS)
        assert torch.equal(model(WINDOW), before)


# ─── what is left as it was ───


def state_of(model):
    flags = [m.training for m in model.modules()]
    hooks = [len(m._forward_pre_hooks) for m in model.modules()]
    fixed = [(m.adapted_psd, m.adapted_mean) for m in model.modules() if isinstance(m, PSDNorm)]
    return flags, hooks, fixed


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_the_model_comes_back_as_it_was(training, streaming):
    model = deep()
    model[3].train(training)
    before, state = buffers(model), state_of(model)
    with adapt(model, [ROWS], batch_norms=True, streaming=streaming) as adapted:
        assert adapted is model
        assert state_of(model)[0] == state[0]
        assert all(psd is not None for psd, _ in state_of(model)[2])
        model(ROWS)
    assert unchanged(model, before)
    assert state_of(model) == state


@pytest.mark.parametrize("broken", ["inside", "batches", "model"])
def test_the_model_comes_back_after_an_error(broken):
    class Failing:
        def __iter__(self):
            yield ROWS
            if broken == "batches":
                raise OSError("disk gone")

    model = deep()
    if broken == "model":
        model.append(nn.Conv1d(4, 1, 1))  # does not fit
    before, state = buffers(model), state_of(model)
    with pytest.raises((OSError, RuntimeError)), adapt(model, Failing(), batch_norms=True):
        raise OSError
    assert unchanged(model, before)
    assert state_of(model) == state


def test_a_state_dict_taken_inside_holds_no_domain():
    model = one_norm()
    state = model.state_dict()
    with adapt(model, [ROWS]):
        torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)
        model.load_state_dict(state, strict=True)


def test_training_inside_updates_no_barycenter():
    model = one_norm().train()
    before = buffers(model)
    with adapt(model, [ROWS]):
        expected = model(WINDOW)
        assert torch.equal(model.eval()(WINDOW), expected)
    assert unchanged(model, before)


def test_an_inner_adaptation_ends_with_its_block():
    model = deep("domain")
    first, second = [ROWS], [9 * ROWS + 50]
    with torch.no_grad(), adapt(model, first, batch_norms=True):
        outer = model(WINDOW)
        with adapt(model, second, batch_norms=True):
            assert not close(model(WINDOW), outer, 0.1)
        assert torch.equal(model(WINDOW), outer)
        with adapt(model, []):
            model(WINDOW)
        assert torch.equal(model(WINDOW), outer)
    torch.testing.assert_close(outer, inside(model, first, batch_norms=True))


def test_adapting_inside_domains_ignores_their_ids():
    model = deep()
    expected = inside(model, [ROWS])
    with domains([1, 2, 3]):
        assert torch.equal(inside(model, [ROWS]), expected)


def test_adapting_does_not_touch_the_global_random_state():
    model = nn.Sequential(nn.Dropout(0.5), one_norm().train())
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    inside(model, [ROWS])
    torch.manual_seed(3)
    with adapt(model, [ROWS]):
        pass
    assert torch.equal(torch.rand(3), expected)


# ─── what cannot be adapted ───


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (iter([ROWS]), "batches is an iterator, which can be read only once"),
        ((x for x in [ROWS]), "batches is an iterator, which can be read only once"),
        (ROWS, "found one tensor x: pass \\[x\\]"),
        (None, "batches must be an iterable of batches, found NoneType"),
        (5, "batches must be an iterable of batches, found int"),
        ([{"x": ROWS}], "found dict"),
        ([()], "found tuple"),
    ],
)
def test_batches_that_hold_no_inputs_raise(data, message):
    model = deep()
    before = buffers(model)
    with pytest.raises(ArgumentError, match=message), adapt(model, data):
        pass
    assert unchanged(model, before)


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (network, {}, 'Sequential has no PSDNorm with statistics="domain" to adapt'),
        (lambda: nn.Sequential(PSDNorm(2)), {"batch_norms": True}, "or BatchNorm to adapt"),
    ],
)
def test_a_model_without_such_layers_raises(build, options, message):
    with pytest.raises(ConversionError, match=message), adapt(build(), [ROWS], **options):
        pass


def test_what_is_no_module_raises():
    with pytest.raises(ArgumentError, match=r"model must be an nn\.Module"), adapt(None, [ROWS]):
        pass


def test_batch_norms_alone_can_be_adapted_layer_by_layer():
    model = Disordered().eval()
    with torch.no_grad():
        expected = copy.deepcopy(model).train()(ROWS)
        found = inside(model, ROWS.split(UNEVEN), ROWS, batch_norms=True)
    assert close(found, expected, 1e-3)


def test_a_layer_by_row_beside_them_needs_nothing():
    model = nn.Sequential(PSDNorm(2, 5), one_norm()[0]).eval()
    y = inside(model, [ROWS])
    torch.testing.assert_close(y, inside(model[1:], [model[0](ROWS)], model[0](WINDOW)))


# ─── its neighbours ───


def test_the_functions_stay_what_they_are_whatever_is_imported():
    # importing a submodule sets an attribute of its name, so that no submodule may have theirs
    rooms = {module.name for module in pkgutil.iter_modules(psdnorm.__path__)}
    assert not rooms & set(psdnorm.__all__) - {"functional"}
    for room in ("ops", "recompute", "functional", "layer", "convert", "adaptation", "models"):
        importlib.import_module(f"psdnorm.{room}")
    assert psdnorm.adapt is adapt is psdnorm.adaptation.adapt
    assert psdnorm.domains is domains


def test_calibration_takes_the_ids_of_each_batch():
    model = nn.Sequential(PSDNorm(2, 5, statistics="domain"), PSDNorm(2, 1))
    data, ids = [ROWS[:4], ROWS[:0], (ROWS[4:], "y")], [[0, 0, 1, 1], [], list("aabbcc")]
    assert calibrate(model, data, ids=iter(ids)) is model
    parts = []
    for x, of_batch in ((data[0], ids[0]), (ROWS[4:], ids[2])):
        layer = PSDNorm(2, 5, statistics="domain")
        with domains(of_batch):
            layer(x)
        parts.append(layer.running_sqrt_psd)
    torch.testing.assert_close(model[0].running_sqrt_psd, sum(parts) / 2)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (None, "needs to know which rows belong together"),
        ([[0, 1, 2, 3]], "ids ends after batch 1, expected an entry for every batch"),
        ([[0] * 4] * 3, "fewer batches than ids of batches"),
        ([[0, 1, 2]] * 2, "was given 3 ids, but a layer sees 4 rows"),
        ([0, 0, 1, 1], "ids must be one integer or string per sample, found int"),
        (3, "ids must hold the ids of each batch, found int"),
        ("ab", "ids must hold the ids of each batch, found str"),
    ],
)
def test_ids_that_do_not_fit_the_batches_leave_the_model_alone(ids, message):
    model = one_norm()
    before = buffers(model)
    with pytest.raises(ArgumentError, match=message):
        calibrate(model, [ROWS[:4], ROWS[4:8]], ids=ids)
    assert unchanged(model, before)
    assert model[0].momentum == 0.01


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("options", [{}, {"target_power": "unit", "center": "domain"}], ids=str)
def test_a_converted_model_adapts(options, fold):
    model = network(3)
    former = model(x := signals(8))
    convert_norm(model, example_input=x, statistics="domain", fold=fold, **options)
    layers = [block.norm for block in model]
    assert [norm.statistics for norm in layers] == ["domain"] * 3
    assert [norm.adapted_psd for norm in layers] == [None] * 3
    calibrate(model, batches(4), ids=[np.arange(16) // 4] * 4)
    y = inside(model, x.split(3), x)
    if fold:  # the same data, on which it hardly changes
        assert (y - former).norm() < 0.2 * former.norm()
    louder = 30 * x
    assert close(inside(model, louder.split(3), louder), y, 1e-3)


@pytest.mark.parametrize(
    ("build", "size"),
    [
        (USleep, {"depth": 4}),
        (CNNTransformer, {"channels": (4, 8, 16), "strides": (3, 5, 5), "n_layers": 1}),
    ],
)
def test_models_run_by_domain_and_remember_it(build, size, tmp_path):
    arguments = {"statistics": "domain", "target_power": "unit", "center": "domain"}
    torch.manual_seed(0)
    model = build(n_times=300, sfreq=10, norm="psd", norm_arguments=arguments, **size)
    x = 20 * torch.randn(3, 5, 2, 300)  # nights of five epochs
    with pytest.raises(ArgumentError, match="needs to know which rows belong together"):
        model(x)
    with domains(["ann", "bob", "ann"]):
        logits = model(x)
    assert logits.shape == (3, 5, 5)
    logits.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    model.eval().save_pretrained(tmp_path)
    loaded = from_pretrained(tmp_path)
    assert loaded.config["norm_arguments"] == arguments
    assert [repr(m) for m in loaded.modules()] == [repr(m) for m in model.modules()]
    for use in (
        lambda model: inside(model, x.split(1), x, batch_norms=True),
        lambda model: inside(model, [x], x[:1], streaming=True),
    ):
        torch.testing.assert_close(use(loaded), use(model))
    with torch.no_grad(), domains(["ann", "bob", "ann"]):
        torch.testing.assert_close(loaded(x), model(x))


def test_older_checkpoints_are_by_row(tmp_path):
    USleep(n_times=300, sfreq=10, depth=4, norm="psd").save_pretrained(tmp_path)
    model = from_pretrained(tmp_path)
    assert "norm_arguments" not in model.config
    norms = [m for m in model.modules() if isinstance(m, PSDNorm)]
    assert {norm.statistics for norm in norms} == {"row"}


def test_a_thread_adapts_while_another_names_domains():
    model, other = deep(), deep()
    expected, found = inside(model, [ROWS]), []
    with domains([0] * 3):
        thread = threading.Thread(target=lambda: found.append(inside(other, [ROWS])))
        thread.start()
        thread.join()
    torch.testing.assert_close(found[0], expected)
