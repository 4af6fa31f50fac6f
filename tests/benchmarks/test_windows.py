"""Windows files are made of the public originals, here small ones that are written by hand."""

import numpy as np
import pytest
import scipy.io


@pytest.fixture
def windows(from_benchmarks, monkeypatch):
    windows = from_benchmarks("windows")
    monkeypatch.setattr(windows, "CWRU_LENGTH", 8)
    monkeypatch.setattr(windows, "CWRU_WINDOWS", 3)
    monkeypatch.setattr(windows, "HAPT_LENGTH", 4)
    return windows


def cwru_originals(windows, folder):
    """Every sample says where it comes from: number of the file, 0.5 more for FE."""
    for first in windows.CWRU_FILES.values():
        for number in range(first, first + 4):
            sample = np.arange(30.0)[:, None] / 1000
            signals = {f"X{number}_DE_time": number + sample}
            signals[f"X{number}_FE_time"] = number + 0.5 + sample
            signals["X099_DE_time"] = -np.ones((30, 1))  # of another recording
            scipy.io.savemat(folder / f"{number}.mat", signals)


def hapt_originals(folder):
    raw = folder / "HAPT" / "RawData"
    raw.mkdir(parents=True)
    for name, user in (("exp01_user01", 1), ("exp02_user03", 3)):
        sample = np.arange(1, 31)[:, None]
        for kind, at in (("acc", 0), ("gyro", 3)):
            columns = user * 100 + 10 * (at + np.arange(3)) + sample / 100
            np.savetxt(raw / f"{kind}_{name}.txt", columns)
    # experiment, user, activity, first and last sample, counted from 1
    (raw / "labels.txt").write_text(
        "1 1 5 3 13\n1 1 7 14 20\n1 1 1 21 24\n2 3 6 1 9\n2 3 2 28 30\n"
    )
    return raw


def test_a_cwru_file_has_all_faults_speeds_and_sensors_in_consecutive_windows(windows, tmp_path):
    cwru_originals(windows, tmp_path)
    assert windows.main(["cwru", str(tmp_path), str(tmp_path / "cwru.npz")]) == 0
    made = np.load(tmp_path / "cwru.npz")
    assert made["x"].shape == (9 * 4 * 2 * 3, 1, 8)
    assert made["x"].dtype == np.float16
    assert made["classes"].tolist() == [
        *("B_7", "B_14", "B_21", "IR_7", "IR_14", "IR_21"),
        *("OR@6_7", "OR@6_14", "OR@6_21"),
    ]
    mine = (made["y"] == 3) & (made["rpm"] == 1772) & (made["sensor"] == "FE")
    expected = 106.5 + np.arange(24).reshape(3, 1, 8) / 1000
    np.testing.assert_array_equal(made["x"][mine], expected.astype(np.float16))


def test_a_hapt_file_has_windows_within_bouts_of_the_basic_activities(windows, tmp_path):
    hapt_originals(tmp_path)
    assert windows.main(["hapt", str(tmp_path), str(tmp_path / "hapt.npz")]) == 0
    made = np.load(tmp_path / "hapt.npz")
    assert made["y"].tolist() == [4, 4, 0, 5, 5]
    assert made["subject"].tolist() == [1, 1, 1, 3, 3]
    assert made["classes"][4] == "standing"
    starts = [3, 7, 21, 1, 5]
    for window, subject, start in zip(made["x"], made["subject"], starts, strict=True):
        expected = subject * 100 + 10 * np.arange(6)[:, None] + (start + np.arange(4)) / 100
        np.testing.assert_array_equal(window, expected.astype(np.float16))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "200.mat").unlink(), "has no file 200.mat"),
        (lambda folder: (folder / "200.mat").write_bytes(b"x" * 500), "is not a MATLAB file"),
        (
            lambda folder: scipy.io.savemat(folder / "200.mat", {"X200_DE_time": np.ones(30)}),
            "200.mat has no signal X200_FE_time",
        ),
        (
            lambda folder: scipy.io.savemat(folder / "200.mat", {"X200_DE_time": np.ones(23)}),
            "X200_DE_time has 23 samples, expected at least 24",
        ),
    ],
)
def test_wrong_cwru_originals_are_named(windows, tmp_path, capsys, spoil, said):
    cwru_originals(windows, tmp_path)
    spoil(tmp_path)
    assert windows.main(["cwru", str(tmp_path), str(tmp_path / "cwru.npz")]) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "cwru.npz").exists()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("labels.txt", "1 1 5 3 31\n", "has a bout from 3 to 31, expected samples from 1 to 30"),
        ("labels.txt", "1 1 5 3\n", "labels.txt, line 1 has 4 numbers, expected 5"),
        ("labels.txt", "", "labels.txt is empty"),
        ("labels.txt", "1 1 9 3 9\n", "labels.txt has no bout of a basic activity"),
        ("gyro_exp01_user01.txt", "1 2 3\n", "has 1 samples, expected 30"),
        ("gyro_exp01_user01.txt", "a b c\n", "gyro_exp01_user01.txt, line 1: could not convert"),
    ],
)
def test_wrong_hapt_originals_are_named(windows, tmp_path, capsys, name, text, said):
    (hapt_originals(tmp_path) / name).write_text(text)
    assert windows.main(["hapt", str(tmp_path), str(tmp_path / "hapt.npz")]) == 1
    assert said in capsys.readouterr().err


def test_a_missing_folder_and_a_wrong_output_are_named(windows, tmp_path, capsys):
    assert windows.main(["cwru", str(tmp_path / "nowhere"), str(tmp_path / "x.npz")]) == 1
    assert "nowhere is not a folder" in capsys.readouterr().err
    assert windows.main(["cwru", str(tmp_path), str(tmp_path / "x.csv")]) == 1
    assert "must end in .npz" in capsys.readouterr().err
