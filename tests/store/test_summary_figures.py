"""The picture of a store says what is in it, with units, and says when it was made up."""

import re

import numpy as np
import pytest
from stores import night

from psdnorm.errors import ArgumentError, StoreError
from psdnorm.store import Layout, Store, mean_psd, summarize
from psdnorm.store.summary import draw, line_of

LAYOUT = Layout(2, 300, 10.0, "float32")


def store_of(path, nights, layout=LAYOUT, **recipe):
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
    return [night(f"{cohort}-{n}", 30, layout=LAYOUT, **known) for cohort in "ab" for n in (1, 2)]


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
    assert f"4 subjects, 4 nights, 1 hours · recipe paper ({store.hash[:8]})" in texts


def test_the_share_of_each_stage_is_written_into_its_bar(tmp_path):
    stages = np.repeat([0, 2, 4, -1], [7, 11, 2, 10])
    store = store_of(tmp_path, [night("a-1", 30, layout=LAYOUT, stages=stages)])
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
    flat = night("a-1", 30, layout=LAYOUT, cohort="a$_$睡", age=30)
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
