"""``psdnorm inspect``: what is printed, what is drawn, and what is said of a store that is none."""

import errno
import json
import re
import sys

import numpy as np
import pytest
from stores import filled, night
from typer.testing import CliRunner

from psdnorm.cli import app
from psdnorm.store import Layout, Store, summarize
from psdnorm.store.folder import night_path

LAYOUT = Layout(2, 300, 10.0, "float32")
HALF = np.array([0, 2] * 30)


@pytest.fixture
def store(tmp_path):
    pair = ("C3-A2", "C4-A1")
    nights = [
        night("abc-1", 60, layout=LAYOUT, stages=HALF, age=20, sex="F", channels=pair),
        night("abc-2", 60, layout=LAYOUT, stages=HALF, age=40, sex="M", flags=("C3-A2 flat 2 %",)),
        night("xyz-1", 60, layout=LAYOUT, simulated=True, flags=("C3-A2 flat 13 %", "[red]")),
    ]
    return filled(tmp_path / "store", nights, LAYOUT)


def inspect(*arguments):
    return CliRunner().invoke(app, ["inspect", *map(str, arguments)])


def row(text, *start):
    """The cells of the first row that starts with these."""
    lines = (re.split(r"\s{2,}", line.strip()) for line in text.splitlines())
    return next(cells for cells in lines if cells[: len(start)] == list(start))


def sentence(result):
    """The one line that was said to the user."""
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("psdnorm: ").strip()


def test_people_stages_and_flags_of_each_cohort_are_printed(store):
    result = inspect(store.path, "--no-figure")
    assert result.exit_code == 0
    who, stages = result.stdout.split("Stages")
    assert row(who, "abc")[1:7] == ["2", "2", "1.0", "30 (20–40)", "50 %", "no"]
    assert row(who, "xyz")[1:7] == ["1", "1", "0.5", "–", "–", "1"]
    assert row(who, "all")[1:4] == ["3", "3", "1.5"]
    assert row(stages, "abc")[1:] == ["50 %", "0 %", "50 %", "0 %", "0 %", "0 %", "1"]
    assert row(stages, "C3-A2 flat")[1:] == ["2"]
    assert row(stages, "[red]")[1:] == ["1"]


def test_the_recipe_is_told_by_name_hash_and_what_it_does(tmp_path):
    recipe = {"name": "paper", "scaling": "none", "clip": 500.0, "trim": ["PHYS"], "lowpass_hz": 3}
    store = Store.create(tmp_path / "s", recipe | {"trim_margin_s": 1800, "notch_hz": 50}, LAYOUT)
    store.add(night("abc-1", 60, layout=LAYOUT))
    said = " ".join(inspect(store.path, "--no-figure").stdout.split())
    assert f"Recipe paper ({store.hash[:12]})" in said
    assert "low-pass 3 Hz; no scaling (µV); clipped at ±500; wake trimmed in: PHYS" in said
    assert "30 min of wake kept where trimmed; notch_hz: 50" in said
    assert "epochs of 30 s, 2 channels at 10 Hz, float32" in said
    assert "dB re 1 µV²/Hz" in said


def test_a_recipe_of_another_kind_is_told_as_it_stands(tmp_path):
    store = Store.create(tmp_path, {"clip": "soft", "trim": 3, "lowpass_hz": [1]}, LAYOUT)
    store.add(night("abc-1", 60, layout=LAYOUT))
    said = inspect(store.path, "--no-figure").stdout
    assert "Recipe unnamed" in said
    assert "lowpass_hz: [1]; clip: soft; trim: 3" in said


def test_band_powers_are_those_of_a_known_signal(tmp_path):
    # white noise of variance 4 at 100 Hz: a one-sided density of 4 / 50 in every band
    layout = Layout(2, 3000, 100.0, "float32")
    one = night("abc-1", 60, layout=layout, channels=("Fz", "Cz"))
    one.signals[:] = 2 * np.random.default_rng(0).standard_normal(one.signals.shape)
    text = inspect(filled(tmp_path, [one], layout).path, "--no-figure").stdout
    found = [float(cell) for cell in row(text, "abc", "Fz")[2:7]]
    assert found == pytest.approx([10 * np.log10(4 / 50)] * 5, abs=0.2)


def test_simulated_nights_are_announced_and_real_ones_are_not(store, tmp_path):
    assert "SIMULATED: 1 of the 3 nights" in inspect(store.path, "--no-figure").stdout
    real = filled(tmp_path / "real", [night("abc-1", 60, layout=LAYOUT)], LAYOUT)
    assert "SIMULATED" not in inspect(real.path, "--no-figure").stdout


def test_piped_output_is_plain_and_eighty_columns_wide(store):
    lines = inspect(store.path, "--no-figure").stdout.splitlines()
    # but for a path, which would not be one any more with a line's end in it
    assert max(len(line) for line in lines if str(store.path) not in line) <= 80
    assert "\x1b" not in "".join(lines)


def test_json_says_the_same_to_machines_and_nothing_else(store):
    result = inspect(store.path, "--json")
    found = json.loads(result.stdout)
    assert (found["recipe"], found["recipe_hash"]) == (store.recipe, store.hash)
    for cohort, expected in summarize(store).iloc[:-1].iterrows():
        for name, value in expected.items():
            said = found["cohorts"][cohort][name]
            assert said == value or (said is None and np.isnan(value)), name
    assert found["all"]["nights"] == 3
    assert found["all"]["flags"] == {"C3-A2 flat": 2, "[red]": 1}
    assert np.shape(found["cohorts"]["abc"]["spectrum"]["psd"]) == (2, 21)
    assert not (store.path / "inspect.png").exists()


def test_a_figure_is_drawn_into_the_store_and_its_place_is_printed(store):
    result = inspect(store.path)
    assert result.stdout.endswith(f"Drawn: {store.path / 'inspect.png'}\n")
    assert (store.path / "inspect.png").read_bytes().startswith(b"\x89PNG")
    assert Store.open(store.path).verify() == []


def test_a_figure_is_drawn_where_one_asks_for_it_or_not_at_all(store, tmp_path):
    assert inspect(store.path, "--figure", tmp_path / "a.svg", "--json").exit_code == 0
    assert (tmp_path / "a.svg").exists()
    assert inspect(store.path, "--no-figure").exit_code == 0
    assert not (store.path / "inspect.png").exists()


@pytest.fixture
def read_only(store, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("psdnorm.runtime.files._open_partial", refuse)
    return store


def test_a_store_that_cannot_be_written_is_inspected_all_the_same(read_only):
    result = inspect(read_only.path)
    assert result.exit_code == 0
    assert row(result.stdout, "abc")[1] == "2"
    assert "inspect.png cannot be written: Permission denied" in result.stderr
    asked = inspect(read_only.path, "--figure", "a.png")
    assert asked.exit_code == 2
    assert "a.png cannot be written: Permission denied" in asked.stderr


def test_without_matplotlib_everything_is_printed_and_the_extra_is_named(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = inspect(store.path)
    assert result.exit_code == 0
    assert 'pip install "psdnorm[demo]"' in result.stderr
    assert inspect(store.path, "--figure", "a.png").exit_code == 2


def test_verify_says_that_every_byte_is_as_it_was_written(store):
    result = inspect(store.path, "--verify", "--no-figure")
    assert result.exit_code == 0
    assert result.stdout.endswith("Verified: every byte of 3 nights is as it was written.\n")
    assert json.loads(inspect(store.path, "--verify", "--json").stdout)["verified"] is True


def test_verify_lists_every_night_that_is_damaged_or_missing(store):
    flipped, cut, lost = (night_path(store.path, name) for name in ("abc-1", "abc-2", "xyz-1"))
    content = bytearray(flipped.read_bytes())
    content[-100] ^= 1
    flipped.write_bytes(content)
    lost.unlink()
    result = inspect(store.path, "--verify")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{flipped} is corrupted: its content has another checksum",
        f"{lost} is missing, which index.parquet lists (1 of 3)",
    ]
    cut.write_bytes(cut.read_bytes()[:-5])
    assert "2 files are damaged" in inspect(store.path, "--verify").stderr


def test_what_is_no_store_is_one_sentence(store, tmp_path):
    (tmp_path / "other").mkdir()
    broken = night_path(store.path, "abc-2")
    broken.write_bytes(broken.read_bytes()[:-5])
    for path, said in (
        (tmp_path / "absent", f"{tmp_path / 'absent'} is not a folder, expected a store"),
        (tmp_path / "other", f"{tmp_path / 'other'} is not a store: it has no recipe.json"),
        (store.path, f"{broken} is truncated or overlong"),
    ):
        result = inspect(path)
        assert result.exit_code == 2
        assert sentence(result).startswith(said)


def test_an_empty_store_is_one_sentence(tmp_path):
    Store.create(tmp_path, {"name": "robust"})
    for options in ([], ["--json"], ["--verify"]):
        result = inspect(tmp_path, *options)
        assert result.exit_code == 2
        assert sentence(result) == f"{tmp_path} is empty: no night was prepared into it yet"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--figure", "a.txt"], "--figure is 'a.txt', expected a name in .png, .svg, .pdf"),
        (["--figure", "a.png", "--no-figure"], "--figure and --no-figure were both given"),
    ],
)
def test_a_wrong_option_is_one_sentence(store, options, said):
    result = inspect(store.path, *options)
    assert result.exit_code == 2
    assert sentence(result).startswith(said)
