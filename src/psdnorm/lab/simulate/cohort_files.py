"""Simulated nights written in the layouts of the ten cohorts."""

import contextlib
import csv
import functools
import io
import json
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.signal
from numpy.typing import NDArray

import psdnorm
from psdnorm.cohorts import COHORTS, People, Person
from psdnorm.constants import EPOCH_S
from psdnorm.errors import ArgumentError, MissingExtraError, RecordingError
from psdnorm.io import SIMULATED, read_header, read_stages, write_stages
from psdnorm.lab.simulate.plan import PlannedNight, plan_nights
from psdnorm.lab.simulate.profiles import profile_of
from psdnorm.lab.simulate.recorder import add_heart_beats
from psdnorm.lab.simulate.simulated_night import SimulatedNight
from psdnorm.runtime import in_processes, remove_leftovers, written

# RMS of what cancels when the derivations are formed
_NOISE_UV = {"first_reference": 8.0, "second_reference": 8.0, "lateral": 5.0}


@dataclass(frozen=True)
class Mixture:
    """What a channel of a file is made of.

    Parameters
    ----------
    first, second : float
        Share of the night's two derivations.
    first_reference, second_reference : float
        Share of what their reference electrodes see.
    lateral : float
        Share of what differs between left and right.
    """

    first: float = 0.0
    second: float = 0.0
    first_reference: float = 0.0
    second_reference: float = 0.0
    lateral: float = 0.0


Electrodes = Mapping[str, Mixture]  # a channel's label → what it is made of


def derived(first: str, second: str) -> Electrodes:
    """Two channels that were derived before they were stored."""
    return {first: Mixture(first=1), second: Mixture(second=1)}


def apart(left: str, right: str, letter: str) -> Electrodes:
    """Two electrodes and their references, on the other side, for the reader to derive from."""
    return {
        left: Mixture(first=1, first_reference=1),
        right: Mixture(second=1, second_reference=1),
        f"{letter}1": Mixture(second_reference=1),
        f"{letter}2": Mixture(first_reference=1),
    }


def linked(reference: str) -> Electrodes:
    """Electrodes against linked ears: (Fp1+Fp2)/2-Cz and Pz-Oz are the derivations."""
    return {
        f"EEG Fp1-{reference}": Mixture(first=1, first_reference=1, lateral=1),
        f"EEG Fp2-{reference}": Mixture(first=1, first_reference=1, lateral=-1),
        f"EEG Cz-{reference}": Mixture(first_reference=1),
        f"EEG Pz-{reference}": Mixture(second=1, second_reference=1),
        f"EEG Oz-{reference}": Mixture(second_reference=1),
    }


_MASTOIDS, _EARS = apart("C3", "C4", "M"), apart("C3", "C4", "A")
_FRONT_TO_BACK = derived("EEG Fpz-Cz", "EEG Pz-Oz")
_SECOND_EEGS = ("EEG(sec)", "EEG(SEC)", "EEG2", "EEG 2", "EEG sec")
# one way or several, which take turns from subject to subject
WAYS: dict[str, tuple[Electrodes, ...]] = {
    "ABC": (_MASTOIDS,),
    "CCSHS": (_EARS,),
    "CFS": (_MASTOIDS, _EARS),
    # several sites
    "HPAP": (_MASTOIDS, derived("C3-M2", "C4-M1"), apart("EEG C3", "EEG C4", "M")),
    "MROS": (_EARS, _MASTOIDS),
    "SHHS": tuple(derived(second, "EEG") for second in _SECOND_EEGS),
    "CHAT": (_MASTOIDS,),
    "SOF": (_EARS,),
    "PHYS": (_FRONT_TO_BACK,),
    "phys-st": (_FRONT_TO_BACK,),
    "MASS": (linked("LER"), linked("CLE")),
}


def electrodes_of(cohort: str, index: int) -> Electrodes:
    """Return the electrodes in the files of a cohort's subject.

    Parameters
    ----------
    cohort : str
    index : int
        The subject's place in the cohort.
    """
    ways = WAYS[cohort]
    return ways[index % len(ways)]


def potentials(
    signal: NDArray[np.float32], electrodes: Electrodes, sfreq: int, rng: np.random.Generator
) -> dict[str, NDArray[np.float32]]:
    """Return what each electrode records.

    Parameters
    ----------
    signal : ndarray of float32, (2, T)
        The derivations in µV.
    electrodes : mapping of str to Mixture
    sfreq : int
        Sampling rate in Hz.
    rng : numpy.random.Generator
        Source of what references see.

    Returns
    -------
    dict of str to ndarray of float32, (T,)
        µV, by label. Derived from them, the signal comes back to rounding.
    """
    sources = dict(zip(("first", "second"), signal, strict=True))
    streams = rng.spawn(len(_NOISE_UV))
    for (name, rms_uv), stream in zip(_NOISE_UV.items(), streams, strict=True):
        if any(getattr(mixture, name) for mixture in electrodes.values()):
            sources[name] = rms_uv * slow_noise(signal.shape[1], sfreq, stream)
    mixed = {}
    for label, mixture in electrodes.items():
        shares = {name: getattr(mixture, name) for name in sources}
        parts = [sources[name] * np.float32(share) for name, share in shares.items() if share]
        mixed[label] = sum(parts[1:], start=parts[0])
    return mixed


def slow_noise(n_samples: int, sfreq: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return noise of variance 1 that falls from 5 Hz on, (n_samples,)."""
    memory = np.float32(np.exp(-2 * np.pi * 5 / sfreq))
    fresh = rng.standard_normal(n_samples, dtype=np.float32)
    fresh *= np.sqrt(1 - memory**2)
    return scipy.signal.lfilter([np.float32(1)], np.array([1, -memory], np.float32), fresh)


# seconds that a movement lasts and its height in µV
_EYES = {"blink": (0.3, 150.0), "eye_movement": (0.8, 120.0), "slow_eye_movement": (3.0, 80.0)}
_HEART_UV = 1000.0


class Other(NamedTuple):
    """A channel that is not EEG: its label, what it records, and its rate in Hz."""

    label: str
    kind: str
    sfreq: int

    @property
    def unit(self) -> str:
        """What the file declares."""
        return {"heart": "mV", "oxygen": "%"}.get(self.kind, "uV")


_NSRR = (Other("E1", "eyes", 128), Other("ECG", "heart", 256), Other("SpO2", "oxygen", 1))
_FAST = (Other("E1", "eyes", 256), Other("ECG", "heart", 512), Other("SpO2", "oxygen", 1))
_SLEEP_EDF = (Other("EOG horizontal", "eyes", 100), Other("EMG submental", "muscle", 1))
OTHERS: dict[str, tuple[Other, ...]] = {
    "ABC": _FAST,
    "CCSHS": _NSRR,
    "CFS": _NSRR,
    "HPAP": _NSRR,
    "MROS": _FAST,
    "SHHS": (Other("EOG(L)", "eyes", 50), Other("ECG", "heart", 250), Other("SaO2", "oxygen", 1)),
    "CHAT": _NSRR,
    "SOF": _NSRR,
    "PHYS": _SLEEP_EDF,
    "phys-st": _SLEEP_EDF,
    "MASS": (Other("EOG Left Horiz", "eyes", 256), Other("ECG ECGI", "heart", 512)),
}


def record(other: Other, night: SimulatedNight, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return what a channel beside the EEG records.

    Parameters
    ----------
    other : Other
    night : SimulatedNight
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of float32, (T,)
        At the channel's own rate; µV, or per cent of oxygen.
    """
    n_samples = round(night.signal.shape[1] / night.sfreq * other.sfreq)
    noise = slow_noise(n_samples, other.sfreq, rng)
    if other.kind == "eyes":
        trace = 10 * noise
        for kind, (duration_s, height_uv) in _EYES.items():
            _add_turns(trace, other.sfreq, night.events[kind], duration_s, height_uv)
        return trace
    if other.kind == "heart":
        trace = 10 * noise
        add_heart_beats(trace[None], other.sfreq, np.array([_HEART_UV]), rng)
        return trace
    if other.kind == "muscle":
        return 3 * np.abs(noise)
    return np.clip(96 + noise, 0, 100)


def _add_turns(
    trace: NDArray[np.float32],
    sfreq: int,
    onsets_s: NDArray,
    duration_s: float,
    height_uv: float,
) -> None:
    """Add a turn of the eyes at each onset, in place."""
    t = np.arange(round(duration_s * sfreq)) / (duration_s * sfreq)
    wave = (height_uv * np.sin(np.pi * t) ** 2).astype(np.float32)
    for start in (onsets_s * sfreq).astype(int):
        piece = trace[start : start + len(wave)]
        piece += wave[: len(piece)]


RECORD_S = 1
_UNITS = {"uV": 1.0, "mV": 1e-3, "V": 1e-6}  # a µV in each
_LEAST_UV = 250.0
_DIGITAL_MAX = 32767


@dataclass(frozen=True, eq=False)
class Trace:
    """One channel of a file.

    Parameters
    ----------
    label : str
    values : ndarray of float32, (T,)
        µV, whatever the unit; where that is ``%``, from 0 to 100.
    sfreq : int
        Its own sampling rate in Hz.
    unit : {"uV", "mV", "V", "%"}
        What the file declares.
    """

    label: str
    values: NDArray[np.float32] = field(repr=False)
    sfreq: int
    unit: str = "uV"


def write_edf(path: Path, traces: Sequence[Trace], start: datetime) -> None:
    """Write an EDF, whole or not at all.

    No sample is clipped: a channel's range is the smallest of 250, 500, 1000, … µV that holds it,
    so that a step is 0.008 µV for a quiet one.

    Parameters
    ----------
    path : Path
    traces : sequence of Trace
        All of the same length in seconds, a whole number of them.
    start : datetime
    """
    edfio = _edfio()
    equipment, simulated = SIMULATED.decode().split()
    recording = edfio.Recording(
        startdate=start.date(), equipment_code=equipment, additional=[simulated]
    )
    edf = edfio.Edf(
        [_signal(edfio, trace) for trace in traces],
        patient=edfio.Patient(),
        recording=recording,
        starttime=start.time(),
        data_record_duration=RECORD_S,
    )
    # into memory first: what edfio says of a full disk does not name it
    content = io.BytesIO()
    edf.write(content)
    with written(path) as file:
        file.write(content.getbuffer())


def edf_bytes(rates: Sequence[int], duration_s: int) -> int:
    """Return how large a file with channels of these rates in Hz is."""
    return 256 * (len(rates) + 1) + 2 * sum(rates) * duration_s


def _edfio() -> Any:
    try:
        import edfio
    except ImportError as error:
        raise MissingExtraError(
            'writing EDF needs edfio: pip install "psdnorm[recordings]"'
        ) from error
    return edfio


def _signal(edfio: Any, trace: Trace) -> Any:
    if trace.unit == "%":
        limit, physical, least = 100.0, (0.0, 100.0), 0
    else:
        limit = _limit_uv(trace.values)
        high = limit * _UNITS[trace.unit]
        physical, least = (-high, high), -_DIGITAL_MAX
    steps = np.rint(trace.values * np.float32(_DIGITAL_MAX / limit)).astype(np.int16)
    return edfio.EdfSignal.from_digital(
        steps,
        trace.sfreq,
        label=trace.label,
        physical_dimension=trace.unit,
        physical_range=physical,
        digital_range=(least, _DIGITAL_MAX),
    )


def _limit_uv(values: NDArray[np.float32]) -> float:
    highest = max(float(values.max()), -float(values.min()))
    limit = _LEAST_UV
    while limit < highest:
        limit *= 2
    return limit


# of Sleep-EDF's names: the recorder's letter, then the scorer's
_RECORDERS = {"PHYS": "EFG", "phys-st": "J"}
_SCORERS = "CHPAJVWMY"


def signal_path(night: PlannedNight) -> Path:
    """Return where its EDF lies below the root of the cohort's download."""
    return _filled(COHORTS[night.cohort].signals[_spelling(night)], night)


def scoring_paths(night: PlannedNight) -> dict[Path, str]:
    """Return where its scorings lie, each with the format that `write_stages` knows.

    One subject in four of the NSRR has only the XML of Profusion, the others have both.
    """
    templates = COHORTS[night.cohort].scorings
    nsrr = [each for each in templates if each.endswith(".xml")]
    if not nsrr:
        return {_filled(templates[0], night): "edf"}
    first = 2 * _spelling(night)
    paths = {
        _filled(nsrr[first], night): "nsrr",
        _filled(nsrr[first + 1], night): "profusion",
    }
    if night.index % 4 == 2:
        del paths[_filled(nsrr[first], night)]
    return paths


def traces_of(night: PlannedNight, made: SimulatedNight) -> list[Trace]:
    """Return the channels of its EDF."""
    sfreq = int(made.sfreq)
    electrodes = electrodes_of(night.cohort, night.index)
    mixed = potentials(made.signal, electrodes, sfreq, night.stream("electrodes"))
    traces = [Trace(label, values, sfreq, made.unit) for label, values in mixed.items()]
    for other in OTHERS[night.cohort]:
        values = record(other, made, night.stream(other.label))
        traces.append(Trace(other.label, values, other.sfreq, other.unit))
    return traces


def labels_of(night: PlannedNight) -> tuple[str, ...]:
    """Return the labels of its channels, in the order of `traces_of`."""
    return (
        *electrodes_of(night.cohort, night.index),
        *(other.label for other in OTHERS[night.cohort]),
    )


def size_of(night: PlannedNight) -> int:
    """Return the bytes of its EDF."""
    own = int(profile_of(night.cohort).sfreq)
    rates = [own for _ in electrodes_of(night.cohort, night.index)]
    rates += [other.sfreq for other in OTHERS[night.cohort]]
    return edf_bytes(rates, round(night.n_epochs * EPOCH_S))


def _spelling(night: PlannedNight) -> int:
    # CHAT's names of whoever was not randomized begin with baseline all the same
    return int(night.visit == "nonrandomized")


def _filled(template: str, night: PlannedNight) -> Path:
    name = template.format(subject=night.subject, visit=night.visit)
    recorders = _RECORDERS.get(night.cohort, " ")
    for letters in (recorders, _SCORERS):
        name = name.replace("?", letters[night.index % len(letters)], 1)
    return Path(name)


def people_tables(nights: list[PlannedNight]) -> dict[Path, str]:
    """Return the tables of one cohort.

    Parameters
    ----------
    nights : list of PlannedNight
        All that the cohort has.

    Returns
    -------
    dict of Path to str
        Text of each table by its place below the root of the download: one for each visit in the
        NSRR's cohorts, one for all in Sleep-EDF, none in MASS.
    """
    cohort = COHORTS[nights[0].cohort]
    if cohort.people is None:
        return {}
    rows: dict[Path, list[dict[str, str]]] = {}
    for night in nights:
        path = _path(cohort.people, cohort.signals[0], night.visit)
        rows.setdefault(path, []).append(_row(cohort.people, night))
    return {path: _text(own) for path, own in rows.items()}


def _path(people: People, signal: str, visit: str) -> Path:
    plain = [name for name in people.files if name.endswith(".csv") and ".." not in name]
    # sleep-edf's has a name, the NSRR's are named like the signals
    if "*" not in plain[0]:
        return Path(plain[0])
    stem = signal.rpartition("/")[2].replace("{visit}", visit)
    return Path(plain[0].replace("*", stem.replace("{subject}.edf", "dataset")))


def _row(people: People, night: PlannedNight) -> dict[str, str]:
    person = night.person()
    column, said = _sex(people, person)
    row = {
        people.subject[0]: night.subject,
        people.age_at.get(night.visit, people.age[0]): f"{person.age:.1f}",
        column: said,
    }
    if person.family is not None:
        row[people.family[0]] = person.family
    return row


def _sex(people: People, person: Person) -> tuple[str, str]:
    """Return a column, and what it says: the study's own if it has a word for either sex."""
    for column, codes in people.sex.items():
        words = {sex: code for code, sex in codes.items()} or {"F": "F", "M": "M"}
        if words.keys() == {"F", "M"}:
            return column, words[str(person.sex)]
    return "nsrr_sex", {"F": "female", "M": "male"}[str(person.sex)]


def _text(rows: list[dict[str, str]]) -> str:
    text = io.StringIO()
    # a subject's nights are one row each in Sleep-EDF's table, and say the same
    table = csv.DictWriter(text, rows[0], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def make_nights(
    make: Callable[[PlannedNight], PlannedNight], nights: Sequence[PlannedNight], jobs: int
) -> Iterator[PlannedNight]:
    """Yield each night when it is made; the first one that cannot be made ends it.

    Parameters
    ----------
    make : callable
        A function that other processes can import, or a partial of one.
    nights : sequence of PlannedNight
    jobs : int
        Processes at a time; 1 works in this one, in order.
    """
    if jobs < 1:
        raise ArgumentError(f"jobs is {jobs}, expected at least 1")
    if jobs == 1 or len(nights) < 2:
        yield from map(make, nights)
    else:
        yield from in_processes(make, nights, min(jobs, len(nights)), _lost)


def _lost(night: PlannedNight, reason: str) -> PlannedNight:
    raise RecordingError(f"a night of {night.cohort} {night.subject} was not made: {reason}")


MARK = "simulated.json"
_NOTE = "simulated by psdnorm: nobody slept these nights"


def bytes_missing(folder: str | Path, nights: Sequence[PlannedNight]) -> int:
    """Return the bytes of the signals that are not there yet; scorings are small beside them."""
    root = Path(folder)
    there = [root / night.cohort / signal_path(night) for night in nights]
    return sum(
        size_of(night) for night, path in zip(nights, there, strict=True) if not path.exists()
    )


def write_nights(
    folder: str | Path, nights: Sequence[PlannedNight], jobs: int = 1
) -> Generator[PlannedNight, None, None]:
    """Simulate nights and write them below a folder, each cohort in a folder of its own.

    Files that are there and whole are left as they are, so that a run that was ended can be
    started again, or another one can add subjects and visits.

    Parameters
    ----------
    folder : str or Path
        Made if it does not exist.
    nights : sequence of PlannedNight
        All of the same settings.
    jobs : int
        Processes at a time.

    Yields
    ------
    PlannedNight
        As each is done.

    Raises
    ------
    ArgumentError
        If a cohort's folder holds nights of other settings, or files that were not simulated.
    StoreError
        If a file cannot be written.
    """
    root = Path(folder).absolute()  # other processes may be started elsewhere
    by_cohort = {cohort: [n for n in nights if n.cohort == cohort] for cohort in _cohorts(nights)}
    # nothing is made before everything was looked at
    marks = {cohort: _mark(root / cohort, own) for cohort, own in by_cohort.items()}
    _check_room(root, bytes_missing(root, nights))
    for cohort, own in by_cohort.items():
        _open_cohort(root / cohort, marks[cohort], own[0])
    folders = {root / n.cohort / path.parent for n in nights for path in _paths(n)}
    for each in sorted(folders):
        _make(each)
        remove_leftovers(each)
    yield from make_nights(functools.partial(_write_night, root), nights, jobs)


def _cohorts(nights: Sequence[PlannedNight]) -> list[str]:
    return sorted({night.cohort for night in nights})


def _paths(night: PlannedNight) -> list[Path]:
    return [signal_path(night), *scoring_paths(night)]


def _write_night(folder: Path, night: PlannedNight) -> PlannedNight:
    root = folder / night.cohort
    duration_s = night.n_epochs * EPOCH_S
    signal = root / signal_path(night)
    scorings = {root / path: form for path, form in scoring_paths(night).items()}
    missing = [path for path in scorings if not _is_scoring(path, duration_s)]
    has_signal = _is_signal(signal, labels_of(night), duration_s)
    if has_signal and not missing:
        return night
    made = night.simulate()
    if not has_signal:
        write_edf(signal, traces_of(night, made), night.start)
    for path in missing:
        with written(path) as file:
            write_stages(file.name, made.stages.tolist(), scorings[path], night.start)
    return night


def _is_signal(path: Path, labels: tuple[str, ...], duration_s: float) -> bool:
    try:
        header = read_header(path)
    except RecordingError:
        return False
    return header.simulated and header.labels == labels and header.duration_s == duration_s


def _is_scoring(path: Path, duration_s: float) -> bool:
    try:
        return bool((read_stages(path, duration_s) >= 0).all())
    except RecordingError:
        return False


def _mark(root: Path, nights: list[PlannedNight]) -> dict[str, Any]:
    """Return what a cohort's folder will say of itself; refuse one of other settings."""
    settings = nights[0].settings
    mark: dict[str, Any] = {
        "note": _NOTE,
        "psdnorm": psdnorm.__version__,
        "seed": settings.seed,
        "shift": settings.shift,
        "hours": settings.hours,
    }
    before = _read_mark(root)
    for name, asked in mark.items():
        if before and before.get(name) != asked:
            raise ArgumentError(
                f"{root} has nights of {name} {before.get(name)!r:.50}, found {asked!r}: expected "
                "the same, or another folder"
            )
    # never fewer than there were: tables must not lose those that a run before this one made
    return mark | {
        "subjects": max(before.get("subjects", 0), *(night.index + 1 for night in nights)),
        "nights": max(before.get("nights", 0), *(night.night + 1 for night in nights)),
    }


def _read_mark(root: Path) -> dict[str, Any]:
    """Return what a folder says of itself; nothing if it is empty. Refuse one that is not ours."""
    path = root / MARK
    try:
        others = sorted(p.name for p in root.iterdir() if not p.name.startswith("."))
        mark = json.loads(path.read_text(encoding="utf-8")) if MARK in others else {}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ArgumentError(f"{root} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ArgumentError(f"{path} is no JSON: {error}") from error
    if others and MARK not in others:
        raise ArgumentError(
            f"{root} holds {others[0]!r:.80} and no {MARK}, expected an empty folder or simulated "
            "nights"
        )
    counts = [mark.get(count) for count in ("subjects", "nights")] if isinstance(mark, dict) else []
    if others and not (counts and all(isinstance(count, int) for count in counts)):
        raise ArgumentError(f"{path} was changed: it does not say how many nights there are")
    return mark


def _open_cohort(root: Path, mark: dict[str, Any], night: PlannedNight) -> None:
    """Make a cohort's folder, say in it what it is, and write its tables."""
    _make(root)
    remove_leftovers(root)
    _write_text(root / MARK, json.dumps(mark, indent=2) + "\n")
    everybody = plan_nights([night.cohort], mark["subjects"], mark["nights"], night.settings)
    for path, text in people_tables(everybody).items():
        _make((root / path).parent)
        remove_leftovers((root / path).parent)
        _write_text(root / path, text)


def _write_text(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):  # what cannot be read is written, or refused, below
        if path.read_bytes() == text.encode():
            return
    with written(path) as file:
        file.write(text.encode())


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"{folder} cannot be made: {error.strerror or error}") from error


def _check_room(folder: Path, n_bytes: int) -> None:
    there = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(there).free
    if n_bytes > free:
        raise ArgumentError(
            f"{folder} has room for {free} bytes, expected {n_bytes} for the nights"
        )
