"""The channels that are wanted are read in µV, at their own rate and time, or refused by name."""

from datetime import datetime

import edf_files
import numpy as np
import pytest
from edf_files import annotations, channel, edf

from psdnorm.errors import ArgumentError, PsdnormError, RecordingError
from psdnorm.io import edf as edf_module
from psdnorm.io import read_channels, read_header, read_stages


@pytest.fixture
def save(tmp_path):
    def save(content, name="night.edf"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return save


def constant(label, value, n=4, n_records=2, **options):
    """A channel that has one digital value, so one voltage, all the time."""
    return channel(label, np.full((n_records, n), value), **options)


def refusal(call, *arguments, error=RecordingError):
    with pytest.raises(error) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_samples_come_in_microvolts_and_in_order(save):
    path = save(edf([channel("C3", [[0, 1, -1], [32767, -32768, 100]])]))
    read = read_channels(path, ["C3"])
    assert read.signal.dtype == np.float32
    expected = np.float32([[0, 0.1, -0.1, 3276.7, -3276.8, 10]])
    np.testing.assert_allclose(read.signal, expected, rtol=1e-6, atol=1e-5)
    assert (read.channels, read.sfreq, read.gaps_s) == (("C3",), 3.0, ())


@pytest.mark.parametrize(
    ("unit", "factor"),
    [
        *(("uV", 1), ("UV", 1), ("µV", 1), ("µV".encode("latin-1"), 1), ("μV", 1), ("", 1)),
        *(("microV", 1), ("mV", 1e3), ("MV", 1e3), ("V", 1e6), ("Volt", 1e6), ("nV", 1e-3)),
    ],
)
def test_every_spelling_of_a_unit_is_scaled_to_microvolts(unit, factor, save):
    path = save(edf([constant("C3", 10, unit=unit)]))
    np.testing.assert_allclose(read_channels(path, ["C3"]).signal, factor, rtol=1e-6, atol=1e-5)


def test_a_range_that_runs_backwards_inverts(save):
    path = save(edf([constant("C3", 10, physical=(3276.8, -3276.7))]))
    np.testing.assert_allclose(read_channels(path, ["C3"]).signal, -1, atol=1e-3)


@pytest.mark.parametrize("unit", ["DegC", "%", "mmHg", "uV/s"])
def test_what_is_not_measured_in_volts_is_refused(unit, save):
    message = refusal(read_channels, save(edf([constant("T", 0, unit=unit)])), ["T"])
    assert f"has 'T' in '{unit}', expected V, mV, uV or nV" in message


def test_no_unit_and_a_range_below_a_microvolt_is_not_guessed(save):
    path = save(edf([constant("C3", 0, unit="", physical=(-0.0005, 0.0005))]))
    assert "gives no unit for 'C3'" in refusal(read_channels, path, ["C3"])


@pytest.mark.parametrize("wanted", ["EEG Fpz-Cz", "eegfpz-cz", "EEG FPZ - CZ"])
def test_blanks_and_case_of_a_name_do_not_count(wanted, save):
    path = save(edf([constant("EEG Fpz-Cz", 20)]))
    assert read_channels(path, [wanted]).signal[0, 0] == pytest.approx(2)


MONTAGE = {"C3": 10, "A2": 3, "Fp1": 20, "Fp2": 40, "Cz": 7, "EEG(sec)": 50, "EEG Pz-LER": 60}
MONTAGE |= {"EEG Oz-LER": 25, "C4-M1": 11, "C4": 500, "M1": 100}


@pytest.mark.parametrize(
    ("expression", "digital"),
    [
        ("C3", 10),
        ("C3-A2", 7),
        ("c3 - a2", 7),
        ("-C3", -10),
        ("C3+A2", 13),
        ("(Fp1+Fp2)/2-Cz", 23),
        ("Cz-(Fp1+Fp2)/2", -23),
        ("0.5*Fp1+0.5*Fp2-Cz", 23),
        ("2*(C3-A2)*3", 42),
        ("EEG(sec)", 50),
        ("EEG(SEC)-C3", 40),
        ("EEG Pz-LER-EEG Oz-LER", 35),
        ("(EEG Pz-LER+EEG Oz-LER)/2-C3", 32.5),
        ("C4-M1", 11),  # the file has that channel: it is taken as it is
        ("C4-A2", 497),
    ],
)
def test_a_derivation_is_the_expression_of_its_channels(expression, digital, save):
    path = save(edf([constant(label, value) for label, value in MONTAGE.items()]))
    read = read_channels(path, [expression])
    np.testing.assert_allclose(read.signal, digital * edf_files.GAIN_UV, rtol=1e-5)


def test_channels_of_different_units_are_derived_in_microvolts(save):
    path = save(edf([constant("C3", 10, unit="mV"), constant("A2", 10, unit="uV")]))
    np.testing.assert_allclose(read_channels(path, ["C3-A2"]).signal, 999, rtol=1e-6)


def test_candidates_are_tried_in_order_and_the_first_that_fits_is_used(save):
    path = save(edf([constant(label, v) for label, v in {"C3": 9, "M2": 2, "EEG 2": 5}.items()]))
    wanted = {"C3-A2": ("C3-A2", "C3-M2"), "C4-A1": ("EEG(sec)", "EEG2"), "x": "M2"}
    read = read_channels(path, wanted)
    assert read.channels == ("C3-A2", "C4-A1", "x")
    np.testing.assert_allclose(read.signal[:, 0], [0.7, 0.5, 0.2], rtol=1e-5)


def test_eeg_before_a_label_need_not_be_said(save):
    path = save(edf([constant("EEG Fpz-Cz", 7), constant("EEG Cz", 2)]))
    read = read_channels(path, ["Fpz-Cz", "Cz", "Fpz-Cz - Cz"])
    np.testing.assert_allclose(read.signal[:, 0], [0.7, 0.2, 0.5], rtol=1e-5)


def test_a_label_as_it_is_written_comes_before_one_without_its_eeg(save):
    path = save(edf([constant(each, v) for each, v in {"EEG C3": 9, "C3": 1, "A2": 4}.items()]))
    np.testing.assert_allclose(read_channels(path, ["C3-A2"]).signal[0], -0.3, rtol=1e-5)


def test_a_missing_channel_is_named_with_those_found(save):
    path = save(edf([constant("C3", 0), constant("M2", 0), constant("ECG", 0)]))
    message = refusal(read_channels, path, ["C3-A2"])
    assert message == f"{path} has no channel 'A2' for 'C3-A2', found C3, M2, ECG"
    assert refusal(read_channels, path, ["Pz"]) == f"{path} has no channel 'Pz', found C3, M2, ECG"
    message = refusal(read_channels, path, {"C4": ("C4-A1", "EEG (sec)")})
    assert "has none of 'C4-A1', 'EEG (sec)'" in message
    assert message.endswith("found C3, M2, ECG")


def test_a_name_that_two_channels_have_is_refused(save):
    path = save(edf([constant("EEG", 1), constant("eeg ", 2), constant("C3", 3)]))
    assert "has 2 channels named 'EEG', expected one" in refusal(read_channels, path, ["EEG"])
    assert read_channels(path, ["C3"]).signal[0, 0] == pytest.approx(0.3)


@pytest.mark.parametrize(
    "wanted",
    [*(["C3-"], ["C3/0"], ["C3+2"], ["(C3"], ["C3)"], ["C3/A2"], ["C3-C3"], [""], ["()"]),
     *([], "C3", ["C3", "C3"], {"x": ()}, ["(" * 500])],
)  # fmt: skip
def test_what_is_no_expression_is_refused(wanted, save):
    path = save(edf([constant("C3", 1), constant("A2", 2)]))
    refusal(read_channels, path, wanted, error=ArgumentError)


def test_a_fast_ecg_leaves_the_eeg_at_its_rate(save):
    eeg = channel("C3", np.arange(200).reshape(2, 100))
    ecg = constant("ECG", 7, n=512)
    read = read_channels(save(edf([ecg, eeg, ecg | {"label": "ECG2"}])), ["C3"])
    assert read.sfreq == 100
    np.testing.assert_allclose(read.signal[0], 0.1 * np.arange(200), atol=1e-4)


def test_channels_of_two_rates_are_refused_together_and_read_apart(save):
    path = save(edf([constant("C3", 1, n=256), constant("A2", 2, n=128)], record_s=0.5))
    message = refusal(read_channels, path, ["C3-A2"])
    assert "C3 at 512 Hz, A2 at 256 Hz, expected one rate" in message
    refusal(read_channels, path, ["C3", "A2"])
    assert read_channels(path, ["A2"]).sfreq == 256


def test_a_channel_that_is_not_needed_may_be_damaged(save):
    broken = constant("SpO2", 0, unit="%", physical=(0, 0)) | {"digital": ("", "x")}
    path = save(edf([broken, constant("C3", 10)]))
    assert read_channels(path, ["C3"]).signal[0, 0] == pytest.approx(1)
    assert "expected two ranges" in refusal(read_channels, path, ["SpO2"])


def test_bdf_has_samples_of_three_bytes(save):
    digital = [0, 1, -1, 70000, -8388608, 8388607]
    eeg = channel("Cz", np.zeros((2, 3)), physical=(-8388608, 8388607))
    eeg |= {"digital": (-8388608, 8388607)}
    stored = np.array(digital, "<i4").view(np.uint8).reshape(6, 4)[:, :3]
    eeg["data"] = stored.reshape(2, 9)
    content = edf([eeg], version=b"\xffBIOSEMI", reserved="24BIT")
    read = read_channels(save(content, "night.bdf"), ["Cz"])
    np.testing.assert_allclose(read.signal[0], digital)


def test_the_header_says_what_is_there_and_not_who(save):
    path = save(edf([constant("C3", 0, n=100), constant("SpO2", 0, n=1, unit="%")], record_s=2))
    header = read_header(path)
    assert header.labels == ("C3", "SpO2")
    assert [c.sfreq for c in header.channels] == [50, 0.5]
    assert [c.unit for c in header.channels] == ["uV", "%"]
    assert header.channels[0].physical_range == (-3276.8, 3276.7)
    assert header.start == datetime(2001, 2, 3, 22, 10, 5)
    assert (header.duration_s, header.discontinuous) == (4, False)
    read = read_channels(path, ["C3"])
    for secret in ("Harry", "MCH", "MAY", "Jones", "PSG-12"):
        assert secret not in repr(header) + repr(read)


@pytest.mark.parametrize(
    ("date", "time", "start"),
    [
        ("24.04.89", "16.13.00", datetime(1989, 4, 24, 16, 13)),
        ("01.01.84", "00.00.00", datetime(2084, 1, 1)),
        ("01/01/85", "23:59:59", datetime(1985, 1, 1, 23, 59, 59)),
        ("00.00.00", "00.00.00", None),
        ("", "22.10.05", None),
        ("01.01.85", "24.00.00", None),
    ],
)
def test_a_start_that_is_no_date_is_none(date, time, start, save):
    path = save(edf([constant("C3", 0)], date=date, time=time))
    assert read_header(path).start == read_channels(path, ["C3"]).start == start


def test_annotations_are_no_channel_and_a_fraction_of_the_start_counts(save):
    tals = annotations(
        [b"+0.25\x14\x14\x00+1\x1530\x14Sleep stage W\x14\x00", b"+1.25\x14\x14\x00"]
    )
    path = save(edf([constant("C3", 10), tals], reserved="EDF+C"))
    assert read_header(path).labels == ("C3",)
    assert read_channels(path, ["C3"]).start == datetime(2001, 2, 3, 22, 10, 5, 250_000)


def discontinuous(onsets, values=None, record_s=10, n=20):
    records = [b"+%s\x14\x14\x00" % str(onset).encode() for onset in onsets]
    values = values or range(10, 10 + len(onsets))
    eeg = channel("C3", [[value] * n for value in values])
    return edf([eeg, annotations(records)], record_s=record_s, reserved="EDF+D")


def test_a_discontinuous_file_keeps_its_time(save):
    path = save(discontinuous([0, 10, 35, 45, 60]))
    assert read_header(path).discontinuous
    read = read_channels(path, ["C3"])
    assert read.sfreq == 2
    assert read.gaps_s == ((20, 35), (55, 60))
    expected = np.repeat([1.0, 1.1, 0, 1.2, 1.3, 0, 1.4], [20, 20, 30, 20, 20, 10, 20])
    np.testing.assert_allclose(read.signal[0], expected, atol=1e-5)


def test_onsets_written_with_few_digits_make_no_gap(save):
    # records of 1/3 s
    path = save(discontinuous([0, 0.33, 0.67, 1.0, 1.33], record_s=0.3333333, n=10))
    read = read_channels(path, ["C3"])
    assert read.gaps_s == ()
    assert read.signal.shape == (1, 50)


def test_a_discontinuous_file_that_contradicts_itself_is_refused(save):
    path = save(discontinuous([0, 10, 15]))
    assert "record 2 begin at 15 s, 5 s before" in refusal(read_channels, path, ["C3"])
    path = save(discontinuous([0, 2000000]))
    assert "reaches over 2000010 s with its gaps" in refusal(read_channels, path, ["C3"])
    path = save(edf([constant("C3", 1)], reserved="EDF+D"))
    assert "is discontinuous (EDF+D) but has no" in refusal(read_channels, path, ["C3"])
    eeg = constant("C3", 1)
    path = save(edf([eeg, annotations([b"+0\x14\x14\x00", b""])], reserved="EDF+D"))
    assert "does not say when each record begins" in refusal(read_channels, path, ["C3"])
    path = save(edf([eeg, annotations([b"+0\x14\x14\x00", b"noon\x14\x14"])], reserved="EDF+D"))
    assert "'noon' as a time" in refusal(read_channels, path, ["C3"])


GOOD = edf([constant("C3", 10), constant("A2", 3)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an EDF"),
        (b"onset\tduration\tstage\n" * 50, "is not an EDF: it begins with b'onset"),
        (GOOD[:100], "is not an EDF"),
        (GOOD[:700], "is truncated: it has 700 bytes, its header alone needs 768"),
        (GOOD[:-1], "is truncated: it holds 1 of the 2 records"),
        (GOOD[:768], "is truncated: it holds 0 of the 2 records"),
        (GOOD + GOOD[-16:], "holds 3 records, its header names 2"),
        (GOOD[:252] + b"many" + GOOD[256:], "has 'many' as the number of signals"),
        (GOOD[:252] + b"0   " + GOOD[256:], "has '0' as the number of signals"),
        (GOOD[:184] + b"1024    " + GOOD[192:], "gives 1024 bytes as the size of its header"),
        (GOOD[:236] + b"1.5     " + GOOD[244:], "has 1.5 as the number of records"),
        (GOOD[:236] + b"0       " + GOOD[244:768], "has channels but no data record"),
        (GOOD[:244] + b"-1      " + GOOD[252:], "has '-1' as the duration of a record"),
        (GOOD[:244] + b"0       " + GOOD[252:], "gives 0 s as the duration of a record"),
        (GOOD[:244] + b"nan     " + GOOD[252:], "has 'nan' as the duration of a record"),
        (GOOD[:244] + b"1e300   " + GOOD[252:], "expected at most 2592000 s"),
        (GOOD[:244] + b"1e-300  " + GOOD[252:], "expected up to 100 kHz"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(content, message, save):
    path = save(content)
    found = refusal(read_channels, path, ["C3"])
    assert found.startswith(str(path))
    assert message in found


def test_what_a_recorder_left_without_a_count_is_read_as_far_as_it_goes(save):
    path = save(GOOD[:236] + b"-1      " + GOOD[244:] + b"\x00" * 5)
    assert read_channels(path, ["C3-A2"]).signal.shape == (1, 8)


@pytest.mark.parametrize("suffix", ["edf", "vhdr"])
def test_a_file_that_is_not_there_is_named(suffix, tmp_path):
    path = tmp_path / f"absent.{suffix}"
    for call in (read_header, lambda p: read_channels(p, ["C3"])):
        assert refusal(call, path) == f"{path} cannot be read: No such file or directory"


def test_a_folder_is_no_recording(tmp_path):
    (tmp_path / "night.edf").mkdir()
    message = refusal(read_channels, tmp_path / "night.edf", ["C3"])
    assert message.endswith("night.edf cannot be read: Is a directory")


def test_what_edfio_writes_is_read_as_edfio_reads_it(tmp_path):
    edfio = pytest.importorskip("edfio")
    rng = np.random.default_rng(0)
    eeg = [
        edfio.EdfSignal(
            30 * rng.standard_normal(256 * 60), 256, label=name, physical_dimension="uV"
        )
        for name in ("EEG C3", "EEG A2")
    ]
    ecg = edfio.EdfSignal(rng.standard_normal(512 * 60), 512, label="ECG", physical_dimension="mV")
    notes = [edfio.EdfAnnotation(3, 30, "Sleep stage W")]
    edfio.Edf([ecg, *eeg], annotations=notes).write(tmp_path / "night.edf")
    read = read_channels(tmp_path / "night.edf", ["EEG C3-EEG A2", "EEG A2"])
    expected = edfio.read_edf(tmp_path / "night.edf").signals
    np.testing.assert_allclose(read.signal[0], expected[1].data - expected[2].data, atol=1e-4)
    np.testing.assert_allclose(read.signal[1], expected[2].data, atol=1e-4)
    assert read.sfreq == 256


def mutated(content, rng, n_header):
    """Damage a file: bytes replaced, numbers put into fields, pieces cut out or doubled."""
    content = bytearray(content)
    words = [b"-1", b"0", b"1e999", b"nan", b"99999999", b"-32768", b"1e-9", b"\xff\x00", b"1,5"]
    for _ in range(rng.integers(1, 6)):
        place = int(rng.integers(n_header))
        kind = rng.integers(5)
        if kind <= 1:
            content[place] = rng.integers(256)
        elif kind == 2:
            place -= place % 8
            content[place : place + 8] = words[rng.integers(len(words))].ljust(8)
        elif kind == 3:
            del content[place : place + int(rng.integers(1, 9))]
        else:
            content[place:place] = content[place : place + int(rng.integers(1, 9))]
    return bytes(content[: rng.integers(len(content))] if rng.random() < 0.1 else content)


def fuzz(path, n):
    rng = np.random.default_rng(7)
    tals = annotations([b"+0\x14\x14\x00+0\x1530\x14Sleep stage W\x14\x00", b"+9\x14\x14\x00"])
    files = [
        (edf([constant("C3", 10), constant("A2", 3), constant("ECG", 1, n=9)]), 1024),
        (edf([constant("C3", 10), constant("A2", 3), tals], reserved="EDF+D"), 1200),
        (edf([constant("C3", 10), constant("A2", 3), tals], reserved="EDF+C"), 1200),
    ]
    messages = []
    for index in range(n):
        content, n_header = files[index % 3]
        path.write_bytes(mutated(content, rng, n_header))
        for read in (lambda: read_channels(path, ["C3-A2"]), lambda: read_stages(path, 60.0)):
            try:
                read()
            except PsdnormError as error:
                messages.append(str(error))
    assert all(str(path) in message and "\n" not in message for message in messages)
    return len(messages)


def test_damaged_headers_give_only_our_own_errors(tmp_path):
    assert 500 < fuzz(tmp_path / "night.edf", 500) < 1000


@pytest.mark.slow
def test_many_damaged_headers_give_only_our_own_errors(tmp_path):
    assert 10_000 < fuzz(tmp_path / "night.edf", 10_000) < 20_000


def test_a_derivation_is_the_same_however_many_records_are_read_at_once(tmp_path, monkeypatch):
    path = tmp_path / "night.edf"
    rng = np.random.default_rng(0)
    channels = [channel(label, rng.integers(-999, 999, (7, 10))) for label in ("C3", "A1", "A2")]
    path.write_bytes(edf(channels))
    together = read_channels(path, ["C3-(A1+A2)/2"]).signal
    for at_once in (1, 25):
        monkeypatch.setattr(edf_module, "_AT_ONCE", at_once)
        np.testing.assert_array_equal(read_channels(path, ["C3-(A1+A2)/2"]).signal, together)
