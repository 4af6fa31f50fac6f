"""Spectra behind a norm are those of the features that really come out of it."""

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import signal
from small_runs import PROTOCOL, nights, small_store
from stores import filled

from psdnorm.experiments.execute import run_grid
from psdnorm.experiments.grid import Axes, grid_of
from psdnorm.models import CNNTransformer, from_pretrained
from psdnorm.present.figure import CannotDraw, new_canvas
from psdnorm.report.contest import contests
from psdnorm.report.figures.night_figures import Spectrum, _draw_cohorts, draw_spectra, spectra_of
from psdnorm.report.results import read_results
from psdnorm.store import Layout, Store

NORMS = ("batch", "tma", "psd")
RATES = (20, 20, 10, 5)  # of the input and behind each block, Hz


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("spectra")
    store = small_store(path / "store", nights(("abc", "mno", "xyz"), 2))
    runs = grid_of([Axes(norms=NORMS, hold_outs=("abc",), seeds=(0,))])
    protocol = replace(PROTOCOL, max_epochs=1, validation_fraction=0.5)
    for outcome in run_grid(store, runs, protocol, path / "runs", device="cpu", keep="weights"):
        assert outcome.status == "done", outcome.reason
    return store, path / "runs"


@pytest.fixture(scope="module")
def drawing(trained):
    store, runs = trained
    return draw_spectra(contests(read_results(runs))[0], store)


def hooked(model, x):
    """What comes out of the norm of each encoder block."""
    found = []
    for block in model.encoder_blocks:
        block.block_prepool[-1].register_forward_hook(lambda *call: found.append(call[-1]))
    with torch.no_grad():
        model(x)
    return found


def welch_db(rows, rate):
    """Mean over channels of SciPy's density, in dB, without 0 and half of the rate."""
    size = round(4 * rate)
    centred = rows - rows.mean(axis=-1, keepdims=True)
    hz, psd = signal.welch(
        centred, rate, "hann", size, size // 2, detrend=False, return_onesided=True
    )
    inner = (hz > 0) & (hz < rate / 2)
    return hz[inner], 10 * np.log10(psd.mean(axis=0)[inner])


def test_lines_are_the_densities_of_the_input_and_of_each_norms_output(trained, drawing, line_of):
    store, runs = trained
    model = from_pretrained(runs / "cells" / "usleep_psd_f5_d3_abc_all_seed0" / "weights")
    measured = []
    for recording in ("abc-0", "abc-1"):
        n = len(store.signals(recording))
        x, _ = store.read(recording, (n - 35) // 2, 35)
        rows = [torch.from_numpy(x).transpose(0, 1).flatten(1)]
        rows += [each[0] for each in hooked(model, torch.from_numpy(x)[None])]
        measured.append(
            [welch_db(r.double().numpy(), rate) for r, rate in zip(rows, RATES, strict=True)]
        )
    column = drawing.canvas.axes[NORMS.index("psd") :: len(NORMS)]
    assert column[0].get_title(loc="left") == "PSDNorm"
    for axes, first, second in zip(column, *measured, strict=True):
        line = line_of(axes, "abc")
        assert line.get_xdata() == pytest.approx(first[0])
        assert line.get_ydata() == pytest.approx((first[1] + second[1]) / 2, abs=1e-3)


def test_the_words_say_how_far_the_held_out_cohort_is_from_the_others(drawing, line_of):
    for norm, label in zip(range(len(NORMS)), ("BatchNorm", "TMA", "PSDNorm"), strict=True):
        (said,) = [part for part in drawing.words.split(". ") if part.startswith(f"{label}:")]
        for axes in drawing.canvas.axes[norm :: len(NORMS)]:
            lines = {each.get_label(): each.get_ydata() for each in axes.lines}
            distance = np.abs(lines["abc"] - (lines["mno"] + lines["xyz"]) / 2).mean()
            assert f"{distance:.2f} dB" in said


def test_nights_reach_the_network_of_tma_aligned(drawing, line_of):
    batch, tma = drawing.canvas.axes[:2]
    apart = [
        np.abs(line_of(axes, "abc").get_ydata() - line_of(axes, "xyz").get_ydata()).mean()
        for axes in (batch, tma)
    ]
    assert apart[1] < 0.5 * apart[0]


def test_the_blocks_of_cnn_transformer_have_the_rates_of_their_strides(trained, tmp_path):
    store, _ = trained
    arguments = {"channels": [4, 8, 8], "strides": [3, 2, 2], "n_layers": 1, "n_heads": 2}
    torch.manual_seed(0)
    model = CNNTransformer(n_times=60, sfreq=20, norm="psd", **arguments).eval()
    model.save_pretrained(tmp_path / "weights", recipe=store.recipe, training_data={})
    spectra, missing = spectra_of(tmp_path, store, {"abc": ["abc-0"], "xyz": ["xyz-0"]})
    assert not missing
    # half of each block's rate, as near as segments of 4 s come to it
    half_rates = [20 / 2, 20 / 3 / 2, 20 / 6 / 2, 20 / 12 / 2]
    assert [each.frequencies_hz[-1] for each in spectra] == pytest.approx(half_rates, rel=0.2)
    n = len(store.signals("xyz-0"))
    x = torch.from_numpy(store.read("xyz-0", (n - 35) // 2, 35)[0])
    found = []
    model.blocks[5].register_forward_hook(lambda *call: found.append(call[-1].clone()))
    with torch.no_grad():
        model(x[None])
    expected = welch_db(found[0][0].double().numpy(), 20 / 6)[1]
    assert spectra[2].decibels.loc["xyz"].to_numpy() == pytest.approx(expected, abs=1e-3)


def test_what_the_recipe_does_not_let_pass_is_neither_drawn_nor_counted(trained):
    store, runs = trained
    run = runs / "cells" / "usleep_psd_f5_d3_abc_all_seed0"
    chosen = {"abc": ["abc-0"], "xyz": ["xyz-0"]}
    whole, _ = spectra_of(run, store, chosen)
    narrow = Store(store.path, {**store.recipe, "lowpass_hz": 6.0}, store.layout)
    passed, _ = spectra_of(run, narrow, chosen)
    assert [each.frequencies_hz[-1] for each in whole] == [9.75, 9.75, 4.75, 2.25]
    assert [each.frequencies_hz[-1] for each in passed] == [6.0, 6.0, 4.75, 2.25]
    for part, each in zip(passed, whole, strict=True):
        kept = each.decibels.loc[:, each.frequencies_hz <= 6]
        assert part.decibels.equals(kept)
        assert part.distance("abc") == pytest.approx(
            (kept.loc["abc"] - kept.loc["xyz"]).abs().mean()
        )


def test_nine_other_cohorts_look_different():
    cohorts, hz = [f"c{n}" for n in range(10)], np.arange(1.0, 5.0)
    levels = pd.DataFrame(np.zeros((10, 4)), index=cohorts, columns=hz)
    axes = new_canvas(2, 2).subplots()
    _draw_cohorts(axes, Spectrum(levels), "c0")
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 10


def test_weights_that_are_damaged_are_named_and_the_other_norms_are_drawn(trained, tmp_path):
    store, runs = trained
    shutil.copytree(runs, tmp_path / "runs")
    weights = tmp_path / "runs" / "cells" / "usleep_batch_abc_all_seed0" / "weights"
    (weights / "model.safetensors").write_bytes(b"no weights")
    drawing = draw_spectra(contests(read_results(tmp_path / "runs"))[0], store)
    assert len(drawing.missing) == 1
    assert str(weights) in drawing.missing[0]
    assert "PSDNorm" in drawing.words
    assert "Not drawn, as no weights were kept: BatchNorm." in drawing.caption


def test_what_it_needs_is_said(trained, results, tmp_path):
    _, runs = trained
    contest = contests(read_results(runs))[0]
    with pytest.raises(CannotDraw, match="no store of nights was given"):
        draw_spectra(contest, None)
    with pytest.raises(CannotDraw, match="--keep weights"):
        draw_spectra(contests(results)[0], None)
    other = filled(tmp_path, nights(("abc",), 1), Layout(n_channels=2, n_times=60, sfreq=20.0))
    with pytest.raises(CannotDraw, match=f"the runs were begun with .*, found .* in {tmp_path}"):
        draw_spectra(contest, other)
