"""Simulated nights, written in the layout of each cohort's download or added to a store."""

import contextlib
import io
import shutil
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.signal
from numpy.typing import NDArray

import psdnorm
from psdnorm.cohorts import COHORTS, NightFiles, People, Person
from psdnorm.constants import EPOCH_S
from psdnorm.errors import (
    ArgumentError,
    MissingExtraError,
    RecordingError,
    StoreError,
    os_errors_as,
)
from psdnorm.io import MICROVOLTS, SIMULATED, Recording, read_header, read_stages, write_stages
from psdnorm.lab.simulate.plan import PlannedNight, plan_nights
from psdnorm.lab.simulate.profiles import profile_of
from psdnorm.lab.simulate.recorder import add_heart_beats
from psdnorm.lab.simulate.simulated_night import SimulatedNight
from psdnorm.prepare import Recipe, preprocess, recording_name
from psdnorm.runtime import json_text, read_json, remove_leftovers, run_all, written
from psdnorm.store import Night, Store, night_path

# RMS in µV of sources that cancel when the derivations are formed
_NOISE_UV = {"first_reference": 8.0, "second_reference": 8.0, "lateral": 5.0}


# shares of the sources in each channel of a file, by its label: of the night's two derivations, of
# the potentials of their reference electrodes, and of the difference between left and right
Electrodes = Mapping[str, Mapping[str, float]]


def derived(first: str, second: str) -> Electrodes:
    """Two channels that are stored as derivations."""
    return {first: {"first": 1}, second: {"second": 1}}


def apart(left: str, right: str, letter: str) -> Electrodes:
    """Two electrodes and their contralateral references, for the reader to derive from."""
    return {
        left: {"first": 1, "first_reference": 1},
        right: {"second": 1, "second_reference": 1},
        f"{letter}1": {"second_reference": 1},
        f"{letter}2": {"first_reference": 1},
    }


def linked(reference: str) -> Electrodes:
    """Electrodes against linked ears; the derivations are (Fp1+Fp2)/2-Cz and Pz-Oz."""
    return {
        f"EEG Fp1-{reference}": {"first": 1, "first_reference": 1, "lateral": 1},
        f"EEG Fp2-{reference}": {"first": 1, "first_reference": 1, "lateral": -1},
        f"EEG Cz-{reference}": {"first_reference": 1},
        f"EEG Pz-{reference}": {"second": 1, "second_reference": 1},
        f"EEG Oz-{reference}": {"second_reference": 1},
    }


_MASTOIDS, _EARS = apart("C3", "C4", "M"), apart("C3", "C4", "A")
_FRONT_TO_BACK = derived("EEG Fpz-Cz", "EEG Pz-Oz")
_SECOND_EEGS = ("EEG(sec)", "EEG(SEC)", "EEG2", "EEG 2", "EEG sec")
# one or more montages, which alternate between subjects
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
    """Return the electrodes in the files of a cohort's subject, given by index."""
    return WAYS[cohort][index % len(WAYS[cohort])]


def potentials(
    signal: NDArray[np.float32], electrodes: Electrodes, sfreq: int, rng: np.random.Generator
) -> dict[str, NDArray[np.float32]]:
    """Return what each electrode records, from which the derivations follow to rounding."""
    sources = dict(zip(("first", "second"), signal, strict=True))
    streams = rng.spawn(len(_NOISE_UV))
    for (name, rms_uv), stream in zip(_NOISE_UV.items(), streams, strict=True):
        if any(name in mixture for mixture in electrodes.values()):
            sources[name] = rms_uv * slow_noise(signal.shape[1], sfreq, stream)
    mixed = {}
    for label, mixture in electrodes.items():
        own = [name for name in sources if name in mixture]
        parts = [sources[name] * np.float32(mixture[name]) for name in own]
        mixed[label] = sum(parts[1:], start=parts[0])
    return mixed


def slow_noise(n_samples: int, sfreq: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return noise of variance 1 with a corner at 5 Hz, (n_samples,)."""
    memory = np.float32(np.exp(-2 * np.pi * 5 / sfreq))
    fresh = rng.standard_normal(n_samples, dtype=np.float32)
    fresh *= np.sqrt(1 - memory**2)
    return scipy.signal.lfilter([np.float32(1)], np.array([1, -memory], np.float32), fresh)


# duration of an eye movement in seconds, and its height in µV
_EYES = {"blink": (0.3, 150.0), "eye_movement": (0.8, 120.0), "slow_eye_movement": (3.0, 80.0)}
_HEART_UV = 1000.0


class Other(NamedTuple):
    """A channel that is not EEG."""

    label: str
    kind: str
    sfreq: int

    @property
    def unit(self) -> str:
        """Physical dimension that the file declares."""
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
    """Return what such a channel records, (T,), in µV or per cent."""
    n_samples = round(night.signal.shape[1] / night.sfreq * other.sfreq)
    noise = slow_noise(n_samples, other.sfreq, rng)
    if other.kind == "eyes":
        trace = 10 * noise
        for kind, (duration_s, height_uv) in _EYES.items():
            t = np.arange(round(duration_s * other.sfreq)) / (duration_s * other.sfreq)
            wave = (height_uv * np.sin(np.pi * t) ** 2).astype(np.float32)
            for start in (night.events[kind] * other.sfreq).astype(int):
                piece = trace[start : start + len(wave)]
                piece += wave[: len(piece)]
        return trace
    if other.kind == "heart":
        trace = 10 * noise
        add_heart_beats(trace[None], other.sfreq, np.array([_HEART_UV]), rng)
        return trace
    if other.kind == "muscle":
        return 3 * np.abs(noise)
    return np.clip(96 + noise, 0, 100)


RECORD_S = 1
_LEAST_UV = 250.0
_DIGITAL_MAX = 32767


@dataclass(frozen=True, eq=False)
class Trace:
    """One channel of a file."""

    label: str
    # (T,): µV whatever the unit, but from 0 to 100 if it is %
    values: NDArray[np.float32] = field(repr=False)
    sfreq: int
    unit: str = "uV"  # "uV", "mV", "V" or "%", as the file declares


def write_edf(path: Path, traces: Sequence[Trace], start: datetime) -> None:
    """Write an EDF atomically; traces last the same whole number of seconds."""
    try:
        import edfio
    except ImportError as error:
        raise MissingExtraError(
            'writing EDF needs edfio: pip install "psdnorm[recordings]"'
        ) from error
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
    # into memory first: edfio's error for a full disk does not name the file
    content = io.BytesIO()
    edf.write(content)
    with written(path) as file:
        file.write(content.getbuffer())


def _signal(edfio: Any, trace: Trace) -> Any:
    limit, physical, least = 100.0, (0.0, 100.0), 0
    if trace.unit != "%":
        # the smallest of 250, 500, 1000, … µV that clips no sample: 0.008 µV per step or more
        limit, highest = _LEAST_UV, float(np.abs(trace.values).max())
        while limit < highest:
            limit *= 2
        high = limit / MICROVOLTS[trace.unit]
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


# in Sleep-EDF's file names: the recorder's letter, then the scorer's
_RECORDERS = {"PHYS": "EFG", "phys-st": "J"}
_SCORERS = "CHPAJVWMY"


def signal_path(night: PlannedNight) -> Path:
    """Return the path of its EDF below the root of the cohort's download."""
    return _filled(COHORTS[night.cohort].signals[_spelling(night)], night)


def scoring_paths(night: PlannedNight) -> dict[Path, str]:
    """Return the paths of its scorings, with their formats as `write_stages` calls them."""
    templates = COHORTS[night.cohort].scorings
    nsrr = [each for each in templates if each.endswith(".xml")]
    if not nsrr:
        return {_filled(templates[0], night): "edf"}
    first = 2 * _spelling(night)
    paths = {_filled(nsrr[first], night): "nsrr", _filled(nsrr[first + 1], night): "profusion"}
    # one subject in four of the NSRR has only the XML of Profusion
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


def channel_rates(night: PlannedNight) -> dict[str, int]:
    """Return labels and rates in Hz of the channels of its EDF, in the order of `traces_of`."""
    own = int(profile_of(night.cohort).sfreq)
    others = {other.label: other.sfreq for other in OTHERS[night.cohort]}
    return dict.fromkeys(electrodes_of(night.cohort, night.index), own) | others


def size_of(night: PlannedNight) -> int:
    """Return the size of its EDF in bytes."""
    rates = channel_rates(night).values()
    return 256 * (len(rates) + 1) + 2 * sum(rates) * round(night.n_epochs * EPOCH_S)


def _spelling(night: PlannedNight) -> int:
    # CHAT names the files of children who were not randomized differently
    return int(night.visit == "nonrandomized")


def _filled(template: str, night: PlannedNight) -> Path:
    name = template.format(subject=night.subject, visit=night.visit)
    recorders = _RECORDERS.get(night.cohort, " ")
    for letters in (recorders, _SCORERS):
        name = name.replace("?", letters[night.index % len(letters)], 1)
    return Path(name)


def people_tables(nights: list[PlannedNight]) -> dict[Path, str]:
    """Return the texts of a cohort's tables, given all of its nights, by path in the download."""
    cohort = COHORTS[nights[0].cohort]
    if cohort.people is None:
        return {}
    rows: dict[Path, list[dict[str, str]]] = {}
    for night in nights:
        path = _path(cohort.people, cohort.signals[0], night.visit)
        rows.setdefault(path, []).append(_row(cohort.people, night))
    # in Sleep-EDF's table each night of a subject is a row, with the same values
    return {
        path: pd.DataFrame(own).to_csv(index=False, lineterminator="\n")
        for path, own in rows.items()
    }


def _path(people: People, signal: str, visit: str) -> Path:
    plain = [name for name in people.files if name.endswith(".csv") and ".." not in name]
    # Sleep-EDF's table has a fixed name, the NSRR's are named like the signals
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
    """Return a column and its value: the study's own column if it has codes for both sexes."""
    for column, codes in people.sex.items():
        words = {sex: code for code, sex in codes.items()} or {"F": "F", "M": "M"}
        if words.keys() == {"F", "M"}:
            return column, words[str(person.sex)]
    return "nsrr_sex", {"F": "female", "M": "male"}[str(person.sex)]


def _lost(night: PlannedNight, reason: str) -> PlannedNight:
    raise RecordingError(f"a night of {night.cohort} {night.subject} was not made: {reason}")


MARK = "simulated.json"
_NOTE = "simulated by psdnorm: nobody slept these nights"


def bytes_missing(folder: str | Path, nights: Sequence[PlannedNight]) -> int:
    """Return the size of the EDFs that do not exist yet; scorings are small in comparison."""
    root = Path(folder)
    return sum(size_of(n) for n in nights if not (root / n.cohort / signal_path(n)).exists())


def write_nights(
    folder: str | Path, nights: Sequence[PlannedNight], jobs: int = 1
) -> Generator[PlannedNight, None, None]:
    """Write nights below a folder, one folder per cohort; complete files stay as they are."""
    root = Path(folder).absolute()  # other processes may be started elsewhere
    cohorts = sorted({night.cohort for night in nights})
    by_cohort = {cohort: [n for n in nights if n.cohort == cohort] for cohort in cohorts}
    # everything is checked before anything is written
    marks = {cohort: _mark(root / cohort, own) for cohort, own in by_cohort.items()}
    needed = bytes_missing(root, nights)
    there = next(each for each in (root, *root.parents) if each.exists())
    if needed > (free := shutil.disk_usage(there).free):
        raise ArgumentError(f"{root} has room for {free} bytes, expected {needed} for the nights")
    for cohort, own in by_cohort.items():
        _open_cohort(root / cohort, marks[cohort], own[0])
    for night in nights:
        for path in (signal_path(night), *scoring_paths(night)):
            _make((root / night.cohort / path).parent)
    yield from run_all(partial(_write_night, root), nights, jobs=jobs, lost=_lost)


def _write_night(folder: Path, night: PlannedNight) -> PlannedNight:
    root = folder / night.cohort
    duration_s = night.n_epochs * EPOCH_S
    signal = root / signal_path(night)
    scorings = {root / path: form for path, form in scoring_paths(night).items()}
    missing = [path for path in scorings if not _is_scoring(path, duration_s)]
    has_signal = _is_signal(signal, tuple(channel_rates(night)), duration_s)
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
    """Return the new content of a cohort's mark; raise if the folder has other settings."""
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
    # never fewer than before: the tables must keep the subjects of earlier commands
    return mark | {
        "subjects": max(before.get("subjects", 0), *(night.index + 1 for night in nights)),
        "nights": max(before.get("nights", 0), *(night.night + 1 for night in nights)),
    }


def _read_mark(root: Path) -> dict[str, Any]:
    """Return a folder's mark, empty if the folder is; raise if it holds something else."""
    path = root / MARK
    if not root.exists():
        return {}
    with os_errors_as(ArgumentError, root, "cannot be read"):
        others = sorted(p.name for p in root.iterdir() if not p.name.startswith("."))
    if not others:
        return {}
    if MARK not in others:
        raise ArgumentError(
            f"{root} holds {others[0]!r:.80} and no {MARK}, expected an empty folder or simulated "
            "nights"
        )
    mark = read_json(path)
    if not isinstance(mark, dict) or not all(
        isinstance(mark.get(count), int) for count in ("subjects", "nights")
    ):
        raise ArgumentError(f"{path} was changed: it does not say how many nights there are")
    return mark


def _open_cohort(root: Path, mark: dict[str, Any], night: PlannedNight) -> None:
    """Make a cohort's folder and write its mark and its tables."""
    _write_text(root / MARK, json_text(mark))
    everyone = plan_nights([night.cohort], mark["subjects"], mark["nights"], night.settings)
    for path, text in people_tables(everyone).items():
        _write_text(root / path, text)


def _write_text(path: Path, text: str) -> None:
    _make(path.parent)
    with contextlib.suppress(OSError):  # an unreadable file is rewritten, or raises, below
        if path.read_bytes() == text.encode():
            return
    with written(path) as file:
        file.write(text.encode())


def _make(folder: Path) -> None:
    with os_errors_as(ArgumentError, folder, "cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)


_BY_US = "psdnorm simulate"


def add_nights(
    folder: str | Path, nights: Sequence[PlannedNight], recipe: Recipe, jobs: int = 1
) -> Generator[PlannedNight, None, None]:
    """Simulate and prepare nights and add them to a store; existing nights are kept."""
    store = Store.plan(Path(folder).absolute(), recipe.to_dict(), recipe.layout())
    if store.made:
        _check_settings(store, nights)
    store.make_room()
    try:
        yield from run_all(partial(_add, store, recipe), nights, jobs=jobs, lost=_lost)
    finally:
        store.finish()


def _check_settings(store: Store, nights: Sequence[PlannedNight]) -> None:
    """Raise if a store has nights of a cohort with other settings, or another one of a name."""
    rows = store.index[["cohort", "source"]].drop_duplicates()
    there = {
        cohort: [source for source in sources if source.startswith(_BY_US)]
        for cohort, sources in rows.groupby("cohort")["source"]
    }
    for night in nights:
        others = [each for each in there.get(night.cohort, []) if each != _source(night)]
        if others:
            raise StoreError(
                f"{store.path} has nights of {night.cohort} from {others[0]!r}, found "
                f"{_source(night)!r}: expected the same, or a store of its own"
            )
        known = store.known(name_of(night))
        if known is not None and known["fingerprint"] != night.fingerprint:
            raise StoreError(
                f"{store.path} has {name_of(night)!r} from {known['source']!r}, found one from "
                f"{_source(night)!r} of psdnorm {psdnorm.__version__}: expected a store of its own"
            )


def bytes_missing_in(folder: str | Path, nights: Sequence[PlannedNight], recipe: Recipe) -> int:
    """Return the size of the signals that are not in a store yet, assuming no wake is trimmed."""
    layout = recipe.layout()
    per_epoch = layout.n_channels * layout.n_times * np.dtype(layout.dtype).itemsize
    missing = [n for n in nights if not night_path(Path(folder), name_of(n)).exists()]
    return per_epoch * sum(night.n_epochs for night in missing)


def as_recording(night: PlannedNight) -> Recording:
    """Simulate a night; return what would be read from its files, without edfio."""
    made = night.simulate()
    channels = tuple(COHORTS[night.cohort].channels)
    source = signal_path(night).name
    return Recording(made.signal, channels, made.sfreq, made.stages, night.start, source)


def name_of(night: PlannedNight) -> str:
    """Return the name of a night in a store, the same as if its files had been prepared."""
    return recording_name(
        NightFiles(night.cohort, night.subject, night.visit, signal_path(night), None, {})
    )


def _add(store: Store, recipe: Recipe, night: PlannedNight) -> PlannedNight:
    name = name_of(night)
    if store.known(name) is not None:
        return night  # the same night, as checked before
    facts = {
        "visit": night.visit,
        "source": _source(night),
        "fingerprint": night.fingerprint,
        **night.person()._asdict(),
    }
    recording = as_recording(night)
    store.add(prepared_night(recording, recipe, name, night.cohort, night.subject, **facts))
    return night


def prepared_night(
    recording: Recording, recipe: Recipe, name: str, cohort: str, subject: str, **facts: Any
) -> Night:
    """Prepare a simulated recording for a store."""
    prepared = preprocess(recording, recipe, cohort)
    signals, stages, flags = prepared.signals, prepared.stages, prepared.flags
    known: dict[str, Any] = {"channels": recording.channels, "flags": flags, "simulated": True}
    return Night(name, cohort, subject, signals, stages, **known, **facts)


def _source(night: PlannedNight) -> str:
    own = night.settings
    return f"{_BY_US}, seed {own.seed}, shift {own.shift:g}, {own.hours:g} h"
