"""The numbers that ``psdnorm inspect`` shows."""

import re

import numpy as np
import pytest
import scipy.signal
from stores import filled, night

from psdnorm.errors import ArgumentError, StoreError
from psdnorm.store import Layout, Store, mean_psd, summarize
from psdnorm.store.summary import CohortPSD, count_flags, describe, draw, line_of

LAYOUT = Layout(2, 300, 10.0, "float32")


@pytest.fixture
def store(tmp_path):
    half = np.array([0, 2] * 30)
    nights = [
        night("abc-1", 60, layout=LAYOUT, stages=half, age=20, sex="F", visit="a"),
        night("abc-1b", 60, layout=LAYOUT, stages=half, subject="1", age=20, sex="F", visit="b"),
        night("abc-2", 60, layout=LAYOUT, stages=half, age=40, sex="M", flags=("flat",)),
        night("xyz-1", 30, layout=LAYOUT, stages=np.full(30, -1), simulated=True),
    ]
    return filled(tmp_path, nights, LAYOUT)


def test_subjects_nights_hours_and_shares_are_counted(store):
    table = summarize(store)
    assert table.index.tolist() == ["abc", "xyz", "all"]
    row = table.loc["abc"]
    assert (row["subjects"], row["nights"], row["hours"]) == (2, 3, 1.5)
    assert row[["W", "N1", "N2", "N3", "REM", "unscored"]].tolist() == [0.5, 0, 0.5, 0, 0, 0]
    assert row[["age_mean", "age_min", "age_max", "female"]].tolist() == [30, 20, 40, 0.5]
    assert (row["flagged"], row["simulated"]) == (1, 0)
    assert table.loc["all", ["subjects", "nights", "hours"]].tolist() == [3, 4, 1.75]


def test_what_nobody_knows_is_nan(store):
    row = summarize(store).loc["xyz"]
    assert row[["age_mean", "female", "W", "REM"]].isna().all()
    assert (row["unscored"], row["simulated"]) == (1, 1)


def test_the_mean_spectrum_is_scipys(store):
    found = mean_psd(store, segment_s=4)["xyz"]
    signals, _ = store.read("xyz-1", 0, 30)
    centred = signals - signals.mean(axis=-1, keepdims=True)
    freqs_hz, expected = scipy.signal.welch(centred, 10.0, nperseg=40, detrend=False)
    assert np.allclose(found.freqs_hz, freqs_hz)
    assert np.allclose(found.psd, expected.mean(axis=0), rtol=1e-4)
    assert found.n_nights == 1


def test_the_sample_of_nights_is_bounded_and_seeded(store):
    one, again = (mean_psd(store, most_nights=1, seed=3)["abc"] for _ in range(2))
    assert one.n_nights == 1
    assert np.array_equal(one.psd, again.psd)


def test_segments_longer_than_an_epoch_are_refused(store):
    with pytest.raises(StoreError, match=r"^segment_s is 31, expected part of 30.0 s$"):
        mean_psd(store, segment_s=31)


def test_bytes_are_those_on_disk(store):
    on_disk = sum(path.stat().st_size for path in (store.path / "nights").iterdir())
    assert summarize(store).loc["all", "bytes"] == on_disk


def test_age_and_sex_count_from_whichever_visit_knows_them(tmp_path):
    nights = [
        night("abc-1", 4, visit="a"),
        night("abc-1b", 4, subject="1", visit="b", age=70, sex="F"),
    ]
    row = summarize(filled(tmp_path, nights)).loc["abc"]
    assert (row["subjects"], row["age_mean"], row["female"]) == (1, 70, 1)


def test_a_cohort_that_is_called_all_keeps_its_row(tmp_path):
    store = filled(tmp_path, [night("all-1", 4), night("abc-1", 4)])
    assert summarize(store)["nights"].tolist() == [1, 1, 2]
    spectra = mean_psd(store)
    assert describe(store, summarize(store), spectra)["cohorts"]["all"]["nights"] == 1


def test_a_flag_is_counted_once_a_night_however_much_of_it_is_bad(tmp_path):
    flags = ("C3-A2 flat 12 %", "C3-A2 flat 0.3 %", "short")
    nights = [night("abc-1", 4, flags=flags), night("abc-2", 4, flags=("C3-A2 flat 7 %",))]
    store = filled(tmp_path, [*nights, night("abc-3", 4)])
    assert count_flags(store.index) == {"C3-A2 flat": 2, "short": 1}


def test_a_channel_is_called_by_its_commonest_name(tmp_path):
    names = [("C3-A2", "C4-A1"), ("C3-A2", "C4-M1"), ("C3-A2", "C4-M1"), ()]
    nights = [night(f"abc-{n}", 4, channels=each) for n, each in enumerate(names)]
    nights.append(night("xyz-1", 4))
    spectra = mean_psd(filled(tmp_path, nights))
    assert spectra["abc"].channels == ("C3-A2", "C4-M1 and 1 other")
    assert spectra["xyz"].channels == ("channel 1", "channel 2")


def test_band_powers_are_mean_densities_and_nan_without_power():
    freqs_hz = np.arange(0, 16, 0.5)
    psd = np.stack([np.where(freqs_hz < 4, 100.0, 1.0), np.zeros(32)])
    powers = CohortPSD(freqs_hz, psd, 1, ("a", "b")).band_powers_db()
    assert [powers[band][0] for band in ("delta", "theta", "alpha", "sigma")] == [20, 0, 0, 0]
    assert np.isnan([*(powers[band][1] for band in powers), powers["beta"][0]]).all()


def test_an_empty_store_and_a_night_with_samples_that_are_not_finite_are_named(tmp_path, store):
    with pytest.raises(StoreError, match="empty: no night was prepared into it yet"):
        summarize(Store.create(tmp_path / "empty", {"name": "robust"}))
    store.signals("xyz-1")[:] = np.nan  # a private mapping: not on disk
    with pytest.raises(StoreError, match=r"'xyz-1' of .* has samples that are not finite"):
        mean_psd(store)


DRAWN = Layout(2, 300, 10.0, "float32")


def store_of(path, nights, layout=DRAWN, **recipe):
    store = Store.create(path / "store", {"name": "paper", "scaling": "none"} | recipe, layout)
    for each in nights:
        store.add(each)
    store.finish()
    return store


def texts_of(store, path):
    """Every text in the picture of a store."""
    draw(store, summarize(store), mean_psd(store), path / "figure.svg")
    return re.findall(r"<text[^>]*>([^<]*)</text>", (path / "figure.svg").read_text())


def nights(**known):
    return [night(f"{cohort}-{n}", 30, layout=DRAWN, **known) for cohort in "ab" for n in (1, 2)]


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")]
)
def test_the_ending_chooses_the_format(tmp_path, name, start):
    store = store_of(tmp_path, nights())
    draw(store, summarize(store), mean_psd(store), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_cohorts_stages_counts_and_recipe_are_on_it(tmp_path):
    store = store_of(tmp_path, nights())
    texts = texts_of(store, tmp_path)
    assert {"a", "b", "W", "N1", "N2", "N3", "REM", "hours", "age (years)"} <= set(texts)
    assert f"4 subjects, 4 nights, 1 hour · recipe paper ({store.hash[:8]})" in texts


def test_the_share_of_each_stage_is_written_into_its_bar(tmp_path):
    stages = np.repeat([0, 2, 4, -1], [7, 11, 2, 10])
    store = store_of(tmp_path, [night("a-1", 30, layout=DRAWN, stages=stages)])
    texts = texts_of(store, tmp_path)
    assert {"35", "55", "10"} <= set(texts)


@pytest.mark.parametrize(
    ("scaling", "unit"), [("none", "µV²/Hz"), ("epoch", "SD²/Hz"), ("recording", "IQR²/Hz")]
)
def test_densities_have_the_unit_that_the_recipe_gives(tmp_path, scaling, unit):
    assert f"density ({unit})" in texts_of(store_of(tmp_path, nights(), scaling=scaling), tmp_path)


def test_what_was_simulated_says_so_in_the_title(tmp_path):
    made_up, real = nights(simulated=True), nights()
    mixed = [*made_up[:2], *real[2:]]
    for part, said in ((real, None), (made_up, "all"), (mixed, "2 of 4")):
        store = store_of(tmp_path / str(said), part)
        titles = [text for text in texts_of(store, store.path) if "recipe paper" in text]
        assert titles[0].startswith(f"SIMULATED ({said} nights): ") == (said is not None)


def test_what_is_not_known_is_written_out(tmp_path):
    unscored = nights(stages=np.full(30, -1))
    texts = texts_of(store_of(tmp_path, unscored), tmp_path)
    assert (texts.count("nothing scored"), texts.count("unknown")) == (2, 2)


def test_silence_and_names_that_look_like_formulas_are_drawn(tmp_path):
    flat = night("a-1", 30, layout=DRAWN, cohort="a$_$睡", age=30)
    flat.signals[:] = 0
    assert "a$_$睡" in texts_of(store_of(tmp_path, [flat]), tmp_path)


@pytest.mark.parametrize("n_channels", [1, 3])
def test_every_channel_has_a_panel(tmp_path, n_channels):
    layout = Layout(n_channels, 300, 10.0, "float32")
    names = tuple(f"E{number}" for number in range(n_channels))
    store = store_of(tmp_path, [night("a-1", 30, layout=layout, channels=names)], layout)
    said = " ".join(texts_of(store, tmp_path))
    assert re.findall(r"mean spectrum, (E\d)", said) == list(names)


def test_spectra_end_where_the_recipe_cuts_them(tmp_path):
    whole = texts_of(store_of(tmp_path / "a", nights()), tmp_path)
    cut = texts_of(store_of(tmp_path / "b", nights(), lowpass_hz=3), tmp_path)
    assert "5" in whole
    assert "3.0" in cut
    assert not {"4.0", "5.0", "5"} & set(cut)


def test_the_same_store_gives_the_same_bytes(tmp_path):
    store = store_of(tmp_path, nights())
    draw(store, summarize(store), mean_psd(store), tmp_path / "a.svg")
    draw(store, summarize(store), mean_psd(store), tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_the_lines_of_28_cohorts_are_all_different():
    assert len({line_of(number) for number in range(28)}) == 28


def test_another_ending_is_refused_and_a_folder_that_is_not_there_is_named(tmp_path):
    store = store_of(tmp_path, nights())
    with pytest.raises(ArgumentError, match=r"^figure is 'a.txt', expected a name in .png, .svg"):
        draw(store, summarize(store), mean_psd(store), "a.txt")
    with pytest.raises(StoreError, match=r"absent/a.png cannot be written: No such file"):
        draw(store, summarize(store), mean_psd(store), tmp_path / "absent" / "a.png")
