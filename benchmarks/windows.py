"""Make a windows file from public originals: ``python -m benchmarks.windows cwru FOLDER OUT.npz``.

``cwru`` reads the 12 kHz drive-end files of the Case Western Reserve University Bearing Data
Center (``105.mat`` …): from the start of each recording and sensor, 30 windows of 2,048 samples,
one after the other. ``hapt`` reads ``RawData`` of UCI's HAPT data: from the start of each labelled
bout of the six basic activities, as many windows of 128 samples as fit, without overlap.

A windows file, the input of ``python -m benchmarks.domains``, holds ``x`` (n, C, T) float16, ``y``
(n,), the names of the ``classes``, and keys, such as ``sensor`` or ``subject``, one value per
window.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import scipy.io
from numpy.typing import NDArray

from psdnorm.errors import PsdnormError, RecordingError, StoreError, os_errors_as
from psdnorm.runtime import errors, plural, say, written

Arrays = dict[str, NDArray]

# number of each fault's file at the first speed; those at the others follow it
CWRU_FILES = {
    "B_7": 118, "B_14": 185, "B_21": 222,
    "IR_7": 105, "IR_14": 169, "IR_21": 209,
    "OR@6_7": 130, "OR@6_14": 197, "OR@6_21": 234,
}  # fmt: skip
CWRU_RPM = (1797, 1772, 1750, 1730)
CWRU_SENSORS = ("DE", "FE")
CWRU_WINDOWS, CWRU_LENGTH = 30, 2048

HAPT_ACTIVITIES = (
    *("walking", "walking upstairs", "walking downstairs"),
    *("sitting", "standing", "lying"),
)
HAPT_LENGTH = 128


def cwru(folder: Path) -> Arrays:
    """Read 9 faults at 4 speeds from 2 sensors; keys are ``sensor`` and ``rpm``."""
    x, y, sensors, rpms = [], [], [], []
    for load, rpm in enumerate(CWRU_RPM):
        for fault, first in enumerate(CWRU_FILES.values()):
            number = first + load
            path = _found(folder, f"{number}.mat")
            for sensor in CWRU_SENSORS:
                # some files hold signals of other recordings, too
                signal = _mat_signal(path, f"X{number:03}_{sensor}_time")
                x.append(signal[: CWRU_WINDOWS * CWRU_LENGTH].reshape(CWRU_WINDOWS, 1, -1))
                y += [fault] * CWRU_WINDOWS
                sensors += [sensor] * CWRU_WINDOWS
                rpms += [rpm] * CWRU_WINDOWS
    return {
        **_windows(x, y, list(CWRU_FILES)),
        "sensor": np.array(sensors),
        "rpm": np.array(rpms, np.int16),
    }


def hapt(folder: Path) -> Arrays:
    """Read accelerometer and gyroscope of 30 subjects; the key is ``subject``."""
    labels = _found(folder, "labels.txt", beside="acc_exp01_user01.txt")
    bouts = _numbers(labels, 5).astype(int)
    signals: dict[tuple[int, int], NDArray] = {}
    x, y, subjects = [], [], []
    for experiment, user, activity, first, last in bouts:
        if activity > len(HAPT_ACTIVITIES):
            continue  # a transition between postures
        if (experiment, user) not in signals:
            name = f"exp{experiment:02}_user{user:02}.txt"
            parts = [_numbers(labels.with_name(f"{kind}_{name}"), 3) for kind in ("acc", "gyro")]
            n_samples = [len(part) for part in parts]
            if n_samples[0] != n_samples[1]:
                raise RecordingError(
                    f"gyro_{name} has {n_samples[1]} samples, expected {n_samples[0]} as in "
                    f"acc_{name}"
                )
            signals[experiment, user] = np.hstack(parts).T
        signal = signals[experiment, user]
        if not 1 <= first <= last <= signal.shape[1]:
            raise RecordingError(
                f"{labels} has a bout from {first} to {last}, expected samples from 1 to "
                f"{signal.shape[1]} of experiment {experiment}"
            )
        n = (last - first + 1) // HAPT_LENGTH
        bout = signal[:, first - 1 : first - 1 + n * HAPT_LENGTH]
        x.append(bout.reshape(6, n, HAPT_LENGTH).swapaxes(0, 1))
        y += [activity - 1] * n
        subjects += [user] * n
    if not x:
        raise RecordingError(f"{labels} has no bout of a basic activity")
    return {**_windows(x, y, list(HAPT_ACTIVITIES)), "subject": np.array(subjects, np.int16)}


ORIGINALS = {"cwru": cwru, "hapt": hapt}


def _windows(x: list[NDArray], y: list[int], classes: list[str]) -> Arrays:
    return {
        "x": np.concatenate(x).astype(np.float16),
        "y": np.array(y, np.int8),
        "classes": np.array(classes),
    }


def _found(folder: Path, name: str, beside: str | None = None) -> Path:
    """Return the file of that name in a folder or its sub-folders, beside another if so asked."""
    for path in sorted(folder.rglob(name)):
        if beside is None or path.with_name(beside).exists():
            return path
    also = f" beside {beside}" if beside else ""
    raise RecordingError(f"{folder} has no file {name}{also}")


def _mat_signal(path: Path, name: str) -> NDArray:
    try:
        with os_errors_as(RecordingError, path, "cannot be read"):
            document = scipy.io.loadmat(path, variable_names=[name])
    except RecordingError:
        raise
    except Exception as error:  # SciPy raises many kinds for a damaged file
        raise RecordingError(f"{path} is not a MATLAB file: {error!s:.80}") from error
    if name not in document:
        raise RecordingError(f"{path} has no signal {name}")
    signal = np.ravel(document[name])
    needed = CWRU_WINDOWS * CWRU_LENGTH
    if len(signal) < needed:
        raise RecordingError(
            f"{path}: {name} has {len(signal):,} samples, expected at least {needed:,}"
        )
    return signal


def _numbers(path: Path, n_columns: int) -> NDArray:
    with os_errors_as(RecordingError, path, "cannot be read"):
        lines = path.read_bytes().splitlines()
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = [float(word) for word in line.split()]
        except ValueError as error:
            raise RecordingError(f"{path}, line {number}: {error}") from error
        if len(row) not in (0, n_columns):
            found = plural(len(row), "number")
            raise RecordingError(f"{path}, line {number} has {found}, expected {n_columns}")
        rows += [row] if row else []
    if not rows:
        raise RecordingError(f"{path} is empty")
    return np.array(rows)


def main(arguments: list[str] | None = None) -> int:
    """Make the file; 1 if the originals are incomplete."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("originals", choices=list(ORIGINALS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    chosen = parser.parse_args(arguments)
    try:
        if not chosen.folder.is_dir():
            raise RecordingError(f"{chosen.folder} is not a folder")
        if chosen.out.suffix != ".npz" or not chosen.out.absolute().parent.is_dir():
            raise StoreError(f"{chosen.out} must end in .npz and lie in a folder that exists")
        made = ORIGINALS[chosen.originals](chosen.folder)
        with written(chosen.out) as file:
            np.savez_compressed(file, **made)
    except PsdnormError as error:
        say(errors, str(error))
        return 1
    n, n_channels, n_times = made["x"].shape
    about = f"{plural(n_channels, 'channel')} and {plural(n_times, 'sample')}"
    print(f"{chosen.out}: {plural(n, 'window')} of {about}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
