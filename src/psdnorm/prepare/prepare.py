"""Prepare recordings into a store."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from psdnorm.cohorts import NightFiles, Problem, find_nights, read_night
from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.errors import (
    ArgumentError,
    MissingExtraError,
    PsdnormError,
    RecordingError,
    os_errors_as,
)
from psdnorm.io import Wanted, candidates, open_source, resolve
from psdnorm.prepare.quality import electrode_flags, electrodes_of
from psdnorm.prepare.recipe import Recipe
from psdnorm.prepare.signals import preprocess
from psdnorm.runtime import check_scheduler, run_all
from psdnorm.store import Night, Store

_PIECE = 2**16
# formats that store samples in files beside the one that is opened
_BESIDE = {".vhdr": (".eeg", ".dat", ".vmrk"), ".set": (".fdt",)}


def fingerprint(signal: Path, scoring: Path | None, channels: Mapping[str, str]) -> str:
    """Hash a scoring, and the size and the first and last 64 KiB of a signal's files."""
    sha = hashlib.sha256(json.dumps(dict(channels)).encode())
    others = (signal.with_suffix(suffix) for suffix in _BESIDE.get(signal.suffix.lower(), ()))
    with os_errors_as(RecordingError, signal, "cannot be read"):
        for path in (signal, *(other for other in others if other.exists())):
            with path.open("rb") as file:
                size = file.seek(0, 2)
                sha.update(size.to_bytes(8, "little"))
                for begin in (0, max(0, size - _PIECE)):
                    file.seek(begin)
                    sha.update(file.read(_PIECE))
    if scoring is not None:
        with os_errors_as(RecordingError, scoring, "cannot be read"):
            sha.update(b"within" if scoring == signal else scoring.read_bytes())
    return sha.hexdigest()


def checksum(path: Path) -> str:
    with os_errors_as(RecordingError, path, "cannot be read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


PREPARED, THERE, FAILED = "prepared", "already there", "failed"
_NUMBERS = {stage: number for number, stage in enumerate(STAGES)} | {"unscored": UNSCORED}


@dataclass(frozen=True)
class PreparationOutcome:
    """The outcome of preparing one night."""

    recording: str  # its name in the store
    source: str  # the file of its signal
    status: str  # "prepared", "already there" or "failed"
    reason: str = ""  # one sentence if it failed
    counts: dict[str, int] = field(default_factory=dict)  # epochs per stage, and unscored
    flags: tuple[str, ...] = ()  # problems of the signal
    channels: dict[str, str] = field(default_factory=dict)  # channel name → expression

    @property
    def hours(self) -> float:
        return sum(self.counts.values()) * EPOCH_S / 3600


def recording_name(night: NightFiles) -> str:
    """Return the name of a night in a store: cohort, subject and, if it has one, visit."""
    return "-".join(part for part in (night.cohort, night.subject, night.visit) if part)


def prepare_night(
    night: NightFiles, store_path: str | os.PathLike[str], recipe: Recipe, replace: bool = False
) -> PreparationOutcome:
    """Prepare one night into a store; failures are returned in the outcome."""
    try:
        store = Store.plan(store_path, recipe.to_dict(), recipe.layout())
        return _prepare(night, store, recipe, replace)
    except PsdnormError as error:
        reason = str(error)
    except MemoryError:
        reason = "there was not enough memory"
    except Exception as error:  # one night must not stop the others
        detail = (str(error).strip().splitlines() or [""])[0]
        reason = f"internal error, a bug in psdnorm: {type(error).__name__} {detail}"
    return _failed(night, reason)


class Preparation:
    """The nights of a source, to be prepared into a store.

    Cohort, source, channels and name are those of :func:`psdnorm.cohorts.find_nights`. A source
    without nights or a store with another recipe raises PsdnormError.

    Parameters
    ----------
    store : path
        If it does not exist, it is created when the first night has been prepared.
    channels : sequence or mapping, optional
        Channels to read instead of the cohort's; sets the recipe's number of channels.
    replace : bool
        Whether to replace nights that were prepared from other files or channels; otherwise they
        are kept, and the new ones fail.

    Attributes
    ----------
    problems : list of Problem
        Skipped files, and nights without a scoring.
    same : list of str
        After a run: one sentence per recording of it that is stored under several subjects.
    """

    def __init__(
        self,
        cohort: str,
        source: str | Path,
        store: str | os.PathLike[str],
        recipe: Recipe,
        channels: Wanted | None = None,
        replace: bool = False,
        name: str | None = None,
    ) -> None:
        found = find_nights(cohort, source, channels, name=name)
        self.problems, self.notes = found.problems, found.notes
        self.nights = [  # workers may have another working directory
            dataclasses.replace(
                night,
                signal=night.signal.absolute(),
                scoring=night.scoring and night.scoring.absolute(),
            )
            for night in found.nights
        ]
        self.recipe = recipe
        if channels is not None:
            self.recipe = dataclasses.replace(recipe, n_channels=len(candidates(channels)))
        self.store = Store.plan(Path(store).absolute(), self.recipe.to_dict(), self.recipe.layout())
        self.same: list[str] = []
        self._replace = replace

    def __len__(self) -> int:
        return len(self.nights)

    @property
    def left_out(self) -> list[Problem]:
        """Problems with files that do not belong to any of the nights."""
        used = {path for night in self.nights for path in (night.signal, night.scoring)}
        return [problem for problem in self.problems if problem.file.absolute() not in used]

    def run(
        self, jobs: int = 1, dask: str | None = None
    ) -> Generator[PreparationOutcome, None, None]:
        """Prepare all nights, yield the outcome of each, and write the index at the end.

        The index is also written when the iterator is closed early or interrupted. Nights already
        in the store are skipped, so an interrupted run is resumed by running it again. Raises
        PsdnormError immediately if no night can be prepared: SciPy is missing, the scheduler does
        not respond, or the store is not writable.

        Parameters
        ----------
        jobs : int
            Number of parallel processes; 1 uses the current process.
        dask : str, optional
            Address of a Dask scheduler whose workers are used instead; they must see the same
            files under the same paths.
        """
        if jobs < 1:
            raise ArgumentError(f"jobs is {jobs}, expected at least 1")
        if dask is not None:
            check_scheduler(dask)
        elif find_spec("scipy") is None:
            raise MissingExtraError('preparing needs SciPy: pip install "psdnorm[recordings]"')
        self.store.make_room()
        return self._run(jobs, dask)

    def _run(self, jobs: int, dask: str | None) -> Generator[PreparationOutcome, None, None]:
        first: dict[str, NightFiles] = {}
        duplicates = []
        for night in self.nights:
            name = recording_name(night)
            if first.setdefault(name, night) is not night:
                what = f"it would be {name!r} in the store, and so would {first[name].signal}"
                duplicates.append(_failed(night, what))
        work: Callable[[NightFiles], PreparationOutcome] = partial(
            prepare_night, store_path=self.store.path, recipe=self.recipe, replace=self._replace
        )
        try:
            yield from duplicates
            yield from run_all(work, list(first.values()), jobs=jobs, dask=dask, lost=_failed)
        finally:
            self.store.finish()
            self.same = self._under_several_subjects()

    def _under_several_subjects(self) -> list[str]:
        """Return a sentence per recording of this run that is stored under several subjects."""
        if not self.store.made:
            return []
        index = self.store.index
        ours = index["recording"].isin([recording_name(night) for night in self.nights])
        among = index["checksum"].isin(index.loc[ours, "checksum"]) & (index["checksum"] != "")
        sentences = []
        for _, rows in index[among].groupby("checksum"):
            if len(rows[["cohort", "subject"]].drop_duplicates()) > 1:
                names = " and ".join(repr(name) for name in rows["recording"])
                files = ", ".join(dict.fromkeys(rows["source"]))
                sentences.append(
                    f"{names} in {self.store.path} are the same recording ({files}) under "
                    "different subjects"
                )
        return sorted(sentences)


def _prepare(night: NightFiles, store: Store, recipe: Recipe, replace: bool) -> PreparationOutcome:
    name = recording_name(night)
    source = open_source(night.signal)
    labels = source.header.labels
    resolved = {
        wanted: resolve(options, labels, night.signal) for wanted, options in night.channels.items()
    }
    channels = {wanted: expression for wanted, (expression, _) in resolved.items()}
    mark = fingerprint(night.signal, night.scoring, channels)
    known = store.known(name)
    same = known is not None and known.get("fingerprint") == mark
    if known is not None and not same and not replace:
        return _failed(
            night,
            f"{name!r} is in {store.path} already and was prepared from another "
            f"{known['source']}, another scoring or other channels: give each night a name of its "
            "own (--name names a whole folder), or replace it (--replace) if they were changed on "
            "purpose",
        )
    # metadata tables may have been added since; values from removed ones are kept
    facts = {"age": night.age, "sex": night.sex, "family": night.family}
    if known is not None and same:
        if all(value in (None, known[fact]) for fact, value in facts.items()):
            counts = {stage: int(known[stage]) for stage in _NUMBERS}
            flags = tuple(filter(None, known["flags"].split(";")))
            return PreparationOutcome(name, str(night.signal), THERE, "", counts, flags, channels)
        facts = {fact: known[fact] if value is None else value for fact, value in facts.items()}
    recording = read_night(night, source)
    prepared = preprocess(recording, recipe, night.cohort)
    electrodes = {name: electrodes_of(weights, labels) for name, (_, weights) in resolved.items()}
    loose = electrode_flags(source, electrodes, recording, prepared.quality, prepared.kept)
    flags = (*prepared.flags, *loose)
    store.add(
        Night(
            name,
            night.cohort,
            night.subject,
            prepared.signals,
            prepared.stages,
            visit=night.visit,
            channels=recording.channels,
            flags=flags,
            simulated=source.header.simulated,
            source=night.signal.name,
            checksum=checksum(night.signal),
            fingerprint=mark,
            **facts,  # type: ignore[arg-type]
        ),
        replace=replace or same,  # the same file may have been renamed
    )
    counts = {stage: int((prepared.stages == number).sum()) for stage, number in _NUMBERS.items()}
    return PreparationOutcome(name, str(night.signal), PREPARED, "", counts, flags, channels)


def _failed(night: NightFiles, reason: str) -> PreparationOutcome:
    named = reason if str(night.signal) in reason else f"{night.signal}: {reason}"
    return PreparationOutcome(recording_name(night), str(night.signal), FAILED, named)
