"""A dissection: trained networks predict simulated nights with one shift at a time."""

import contextlib
import functools
import hashlib
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psdnorm
from psdnorm.errors import (
    ArgumentError,
    CheckpointError,
    PsdnormError,
    RecordingError,
    StoreError,
    os_errors_as,
)
from psdnorm.experiments import ExperimentFolder, PieceMeter, Unit, commit_of, units_of
from psdnorm.io import Recording
from psdnorm.lab.dissect.shifts import (
    KINDS,
    NAME,
    UNSHIFTED,
    UNSHIFTED_PROFILE,
    ShiftCondition,
    simulate_condition,
)
from psdnorm.lab.simulate import check_length, prepared_night
from psdnorm.models import WEIGHTS as WEIGHTS_FILE
from psdnorm.prepare import Recipe
from psdnorm.report import Trained, load_trained
from psdnorm.runtime import read_json, run_all, write_json
from psdnorm.store import Night, Store
from psdnorm.training import (
    CONFIG,
    SCORES,
    TMA,
    WEIGHTS,
    NightPrediction,
    Protocol,
    Run,
    adapted_predictions,
    alignment_of,
    finite_predictions,
    network_for,
    predict_nights,
    predicted_sequences,
    quiet_libraries,
    reproducible,
    resolve_device,
    throwaway_model,
    with_size,
    write_outcome,
)

if TYPE_CHECKING:
    import pandas as pd
    import torch

SETTINGS = f"{NAME}.json"
_FORMAT = 1
_TYPES = {"subjects": int, "hours": float, "seed": int}


def begun_with(out: Path) -> dict[str, Any]:
    """Return the settings with which a folder was begun; empty for a new folder."""
    path = out / SETTINGS
    if not path.exists():
        return {}
    found = read_json(path)
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise ArgumentError(
            f"{path} is not of a dissection, or of another version of psdnorm: give another folder"
        )
    for name, kind in _TYPES.items():
        if type(found.get(name)) is not kind:
            raise ArgumentError(
                f"{path} has {found.get(name)!r:.80} as {name}, expected {kind.__name__}"
            )
    kinds = found.get("kinds", [])
    if not isinstance(kinds, list) or not all(kind in list(KINDS) for kind in kinds):
        raise ArgumentError(
            f"{path} has {kinds!r:.80} as kinds, expected a list of some of {', '.join(KINDS)}"
        )
    return found


def claim_dissection(
    out: Path, nights: dict[str, Any], kinds: Collection[str], *, to_predict: bool
) -> None:
    """Write a folder's settings; raise if it has others or, ``to_predict``, another version."""
    described = {"format": _FORMAT, **nights, "psdnorm": psdnorm.__version__}
    there = begun_with(out)
    if there:
        for name, value in described.items():
            found = there.get(name)
            if found != value and (to_predict or name != "psdnorm"):
                raise ArgumentError(
                    f"{out} was started with {name} {found!r:.80}, found {value!r:.80}: use "
                    "another folder"
                )
        # a folder without kinds has all of them
        described = there
        kinds = {*kinds, *there.get("kinds", KINDS)}
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ArgumentError(
            f"{out} holds something other than a dissection, expected a new or empty folder"
        )
    described = {**described, "kinds": [name for name in KINDS if name in kinds]}
    if described == there:
        return
    with os_errors_as(StoreError, out, "cannot be made"):
        out.mkdir(parents=True, exist_ok=True)
    write_json(out / SETTINGS, described)


PREDICTED, WHICH = "scores", "weights.json"
# the most important norms come first, in case a command is stopped; TMA has BatchNorm's network,
# and AdaBN comes with the run that it adapts
_FIRST = {"psd": 0, "batch": 1, TMA: 1}


class Models(NamedTuple):
    """The networks of a folder of runs."""

    runs: list[Run]  # with weights or scores; those of one shape together
    skipped: list[str]  # a sentence for each run that never had weights
    gone: list[str]  # a sentence for each run that lost its weights before it predicted everything


def find_models(
    experiment: ExperimentFolder, out: Path | None = None, conditions: Sequence[ShiftCondition] = ()
) -> Models:
    """Find the runs of a grid that kept their weights, or predicted something in ``out``."""
    runs = [entry.run for entry in experiment.entries()]
    if not runs:
        raise ArgumentError(f"{experiment.path} has no grid, expected a folder of psdnorm lodo")
    found = Models([], [], [])
    for run in runs:
        base = run.base
        owner = "it" if base == run else base.name
        if not experiment.is_done(base):
            found.skipped.append(f"{run.name} is left out: {owner} is not finished")
        elif weights_of(experiment, run).exists():
            found.runs.append(run)
        elif out is None or not (out / PREDICTED / run.name / WHICH).exists():
            found.skipped.append(f"{run.name} is left out: {owner} kept no weights")
        else:
            weights = "its weights" if base == run else f"the weights of {owner}"
            before = f"{weights} were gone before it predicted"
            why = f"{before} a night with and without a shift", f"{before} the others"
            _keep_if_predicted(found, out, run, conditions, why)
    if not found.runs:
        nor = f", and {out} has no loss of any" if found.gone else ""
        raise ArgumentError(
            f"{experiment.path} has no finished run with weights{nor}, expected some: psdnorm lodo "
            "--keep weights"
        )
    return found


def without_damaged(
    models: Models,
    experiment: ExperimentFolder,
    out: Path,
    conditions: Sequence[ShiftCondition],
    damaged: Mapping[Run, str],
) -> Models:
    """Keep networks with damaged weights only if they have predicted something."""
    found = Models([], models.skipped, [*models.gone])
    for run in models.runs:
        if run not in damaged:
            found.runs.append(run)
        else:
            _keep_if_predicted(found, out, run, conditions, (damaged[run], damaged[run]))
    if not found.runs:
        raise ArgumentError(
            f"{experiment.path} has no network that can predict, expected at least one: "
            f"{found.gone[-1]}"
        )
    return found


def _keep_if_predicted(
    found: Models, out: Path, run: Run, conditions: Sequence[ShiftCondition], why: tuple[str, str]
) -> None:
    """Keep a run that has predictions; ``why`` says what is missing, and why."""
    done = {condition for condition in conditions if has_predicted(out, run, condition)}
    if not {UNSHIFTED} < done:
        found.gone.append(f"{run.name} is left out: {why[0]}")
        return
    found.runs.append(run)
    if len(done) < len(conditions):
        found.gone.append(
            f"{run.name} counts with {len(done)} of {len(conditions)} conditions: {why[1]}"
        )


def predicting_order(runs: Sequence[Run]) -> list[Unit]:
    """Return trainings, with their AdaBN evaluations, in the order in which they predict."""
    # those of one shape stay together, as a process keeps only the network that it compiled last
    return sorted(units_of(runs), key=lambda unit: _FIRST.get(unit[0].base.norm, len(_FIRST)))


def weights_of(experiment: ExperimentFolder, run: Run) -> Path:
    """Return the path of a run's weights, which need not exist."""
    return experiment.folder(run.base) / WEIGHTS / WEIGHTS_FILE


def predicted_folder(out: Path, run: Run, condition: ShiftCondition) -> Path:
    """Return the folder of the scores of a run under a condition."""
    return out / PREDICTED / run.name / condition.name


def has_predicted(out: Path, run: Run, condition: ShiftCondition) -> bool:
    """Tell whether a run has predicted a condition."""
    return (predicted_folder(out, run, condition) / SCORES).exists()


class Made(NamedTuple):
    """A test night."""

    condition: ShiftCondition
    subject: str
    reason: str = ""  # why the recipe cannot prepare it, if it cannot

    @property
    def recording(self) -> str:
        """Its name in the store."""
        return f"{self.condition.name}-{self.subject}"


@dataclass(frozen=True)
class TestNights:
    """Nights of the same subjects under several conditions; in a store, a condition is a cohort."""

    __test__ = False  # tells pytest that this is not a test class

    folder: Path  # of the store
    recipe: Recipe
    subjects: int
    hours: float
    seed: int

    def check(self) -> None:
        """Raise if the nights cannot be simulated, before anything is written."""
        if type(self.subjects) is not int or self.subjects < 1:
            raise ArgumentError(f"subjects is {self.subjects!r}, expected an integer of at least 1")
        check_length(UNSHIFTED_PROFILE, 0, self.seed, self.hours)
        n_channels = len(UNSHIFTED_PROFILE.channels)
        if self.recipe.n_channels != n_channels:
            raise ArgumentError(
                f"the recipe {self.recipe.name!r} has {self.recipe.n_channels} channels, expected "
                f"the {n_channels} of a simulated night"
            )

    def named(self, conditions: Sequence[ShiftCondition]) -> list[Made]:
        """Return the nights of some conditions, subject by subject."""
        names = [f"{number:03}" for number in range(self.subjects)]
        return [Made(condition, name) for name in names for condition in conditions]

    def make(self, conditions: Sequence[ShiftCondition], jobs: int = 1) -> Iterator[Made]:
        """Simulate and prepare the nights of some conditions that do not exist yet."""
        nights = self.named(conditions)
        store = Store.plan(self.folder.absolute(), self.recipe.to_dict(), self.recipe.layout())
        store.make_room()
        work = functools.partial(_add, store, self)
        try:
            yield from run_all(work, nights, jobs=jobs, lost=_lost)
        finally:
            store.finish()

    def open(self) -> Store:
        """Open the store of the nights that were made."""
        if not self.folder.is_dir():
            raise StoreError(f"{self.folder} does not exist: no test night could be made")
        return Store.open(self.folder, self.recipe.to_dict())

    def night(self, made: Made) -> Night:
        """Simulate and prepare one night."""
        found = simulate_condition(made.condition, made.subject, self.seed, hours=self.hours)
        recording = Recording(
            found.signal, found.channels, found.sfreq, found.stages, None, made.recording
        )
        return prepared_night(
            recording,
            self.recipe,
            made.recording,
            made.condition.name,
            made.subject,
            source=f"psdnorm dissect, seed {self.seed}, {self.hours:g} h",
            age=round(found.age_y, 1),
            sex=found.sex,
        )


def _add(store: Store, nights: TestNights, made: Made) -> Made:
    if store.known(made.recording) is not None:
        return made
    try:
        store.add(nights.night(made))
    except RecordingError as error:  # it would fail again
        return made._replace(reason=str(error))
    return made


def _lost(made: Made, reason: str) -> Made:
    raise StoreError(f"the test night {made.recording} was not made: {reason}")


def protocol_of(experiment: ExperimentFolder) -> Protocol:
    """Return the protocol of a folder of runs."""
    return Protocol.from_json(experiment.settings()["protocol"])


def trained_for(experiment: ExperimentFolder, run: Run, store: Store) -> Trained:
    """Load the network of a run; raise if it is another run's or for another recipe."""
    trained = load_trained(experiment.folder(run))
    trained.check_takes(store)
    alignment_of(trained.training, store.layout.n_channels, trained.folder)
    sized = with_size(run, trained.arm.filter_size)
    expected = throwaway_model(sized, protocol_of(experiment), store.layout).config
    found = trained.model.config
    for name in {**expected, **found}:
        if found.get(name) != expected.get(name):
            raise CheckpointError(
                f"{trained.folder} has a network whose {name} is {found.get(name)!r:.80}, expected "
                f"{expected.get(name)!r:.80} as {run.name} has it"
            )
    # a network of the same shape may have been trained on other nights
    said, own = trained.training.get("cell"), run.to_json()
    for name in ("norm", "hold_out", "balanced", "seed"):
        if isinstance(said, dict) and said.get(name, own[name]) != own[name]:
            raise CheckpointError(
                f"{trained.folder} has a network that was trained with {name} "
                f"{said[name]!r:.80}, expected {own[name]!r} as {run.name} has it"
            )
    return trained


NIGHTS = "nights"


class Predicted(NamedTuple):
    """The outcome of one network under one condition."""

    run: Run
    condition: ShiftCondition
    reason: str = ""  # why it failed, if it did
    sequences: int = 0  # that were predicted


@dataclass(frozen=True)
class Dissection:
    """Networks, conditions, and the folder of their scores."""

    experiment: ExperimentFolder
    out: Path
    runs: tuple[Run, ...]  # from find_models
    conditions: tuple[ShiftCondition, ...]  # the unshifted one first
    # of the test nights
    subjects: int = 10
    hours: float = 8.0
    seed: int = 0
    # runs with damaged weights, of which only earlier predictions count
    unable: frozenset[Run] = frozenset()

    @property
    def recipe(self) -> Recipe:
        """The recipe of the networks' training nights."""
        path = self.experiment.folder(self.runs[0]) / CONFIG
        if not path.exists():  # an AdaBN run that does not exist yet
            path = self.experiment.folder(self.runs[0].base) / CONFIG
        try:
            return Recipe.from_dict(read_json(path)["recipe"])
        except (KeyError, TypeError, ArgumentError) as error:
            raise ArgumentError(f"{path} has no recipe that psdnorm knows: {error}") from error

    @property
    def nights(self) -> TestNights:
        """The test nights."""
        return TestNights(
            self.out / NIGHTS, self.recipe, self.subjects, float(self.hours), self.seed
        )

    def left(self) -> list[tuple[Run, ShiftCondition]]:
        """Return what networks with weights have not predicted yet."""
        return [
            (run, condition)
            for run in self.runs
            if run not in self.unable and weights_of(self.experiment, run).exists()
            for condition in self.conditions
            if not has_predicted(self.out, run, condition)
        ]

    def damaged(self) -> dict[Run, str]:
        """Return why the weights of some runs cannot be used; AdaBN gets its base run's reason."""
        # those that have predicted everything are loaded only if their weights have changed since
        changed = [run for run in self.runs if self._has_changed(run)]
        needed = dict.fromkeys(run.base for run in [*(run for run, _ in self.left()), *changed])
        if not needed:
            return {}
        recipe, reasons = self.recipe, dict[Run, str]()
        nights = Store.plan(self.out / NIGHTS, recipe.to_dict(), recipe.layout())
        for base in needed:
            try:
                trained_for(self.experiment, base, nights)
            except PsdnormError as error:
                reasons[base] = str(error)
        return {run: reasons[run.base] for run in self.runs if run.base in reasons}

    def claim(self) -> None:
        """Write the settings of the nights and the digests of the weights; raise on conflict."""
        # kinds and networks can be added later; other nights or weights need another folder
        nights = {"subjects": self.subjects, "hours": float(self.hours), "seed": self.seed}
        described = nights | {"recipe": self.recipe.to_dict()}
        kinds = {condition.kind for condition in self.conditions}
        claim_dissection(self.out, described, kinds, to_predict=bool(self.left()))
        for run in self.runs:
            path = self._which(run)
            if run in self.unable:
                continue
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, self._own_weights(run))
            elif self._has_changed(run):
                raise ArgumentError(
                    f"{path.parent} is of other weights than {weights_of(self.experiment, run)}: "
                    "delete it, or give another folder"
                )

    def _which(self, run: Run) -> Path:
        return self.out / PREDICTED / run.name / WHICH

    def _own_weights(self, run: Run) -> dict[str, Any]:
        path = weights_of(self.experiment, run)
        with os_errors_as(CheckpointError, path, "cannot be read"), path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return {"cell": run.to_json(), "sha256": sha256}

    def _has_changed(self, run: Run) -> bool:
        """Tell whether a run has predicted with other weights than it has now."""
        path = self._which(run)
        if not path.exists() or not weights_of(self.experiment, run).exists():
            return False
        before = read_json(path)
        try:
            return before != self._own_weights(run)
        except CheckpointError:  # unreadable, so not what it predicted with
            return True

    def make_nights(self, jobs: int = 1) -> Iterator[Made]:
        """Simulate the nights that are left to predict."""
        needed = dict.fromkeys(condition for _, condition in self.left())
        return self.nights.make(list(needed), jobs)

    def predict(
        self, *, device: str = "auto", fast: bool | str = "auto", keep: bool = False
    ) -> Iterator[Predicted]:
        """Predict what is left, network by network; a failure does not stop the others."""
        left = self.left()
        if not left:
            return
        place = resolve_device(device)
        store = self.nights.open()
        for unit in predicting_order(self.runs):
            todo = [(run, condition) for run, condition in left if run in unit]
            if not todo:
                continue
            with quiet_libraries(), reproducible(place):
                try:
                    predictor = _Predictor(self.experiment, unit[0].base, store, place, fast)
                except PsdnormError as error:
                    yield from (Predicted(*each, str(error)) for each in todo)
                    continue
                for run, condition in todo:
                    yield self._attempt(predictor, run, condition, keep)

    def forget_nights(self) -> None:
        """Delete the test nights if nothing is left to predict; they can be simulated again."""
        if not self.left():
            shutil.rmtree(self.out / NIGHTS, ignore_errors=True)

    def _attempt(
        self, predictor: "_Predictor", run: Run, condition: ShiftCondition, keep: bool
    ) -> Predicted:
        index = predictor.store.index
        index = index[index["cohort"] == condition.name].reset_index(drop=True)
        if index.empty:
            return Predicted(run, condition, "none of its nights could be made")
        folder = predicted_folder(self.out, run, condition)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_outcome(folder, index, predictor.predictions(run, index), keep=keep)
        except PsdnormError as error:
            return Predicted(run, condition, str(error))
        sequences = predicted_sequences(index, predictor.protocol)
        return Predicted(run, condition, sequences=sequences)


class _Predictor:
    """A network with its weights, and the nights as it expects them."""

    def __init__(
        self,
        experiment: ExperimentFolder,
        run: Run,
        store: Store,
        device: "torch.device",
        fast: Any,
    ) -> None:
        self.trained, self.protocol = trained_for(experiment, run, store), protocol_of(experiment)
        self.store, self.device = store, device
        sized = with_size(run, self.trained.arm.filter_size)
        self.network = network_for(sized, self.protocol, store.layout, device, fast=fast)
        self.network.model.load_state_dict(self.trained.model.state_dict())
        self.network.model.eval()

    def predictions(self, run: Run, index: "pd.DataFrame") -> Iterator[NightPrediction]:
        source = self.trained.source(self.store, self.device)
        found: Iterator[NightPrediction]
        if run.is_adapted:
            found = adapted_predictions(
                self.network, source, index, self.protocol, run.layers, device=self.device
            )
        else:
            given = self.network.forward, source, index
            found = predict_nights(*given, device=self.device, **self.protocol.windows)
        return finite_predictions(source, index, found)


class PredictionMeter(PieceMeter):
    """Measures the cost of a piece; writes it after every prediction."""

    def __init__(self, out: Path, device: str, jobs: int) -> None:
        code = commit_of(Path(psdnorm.__file__), only_tracked=True)
        super().__init__(out, device, code, counted="predictions", jobs=jobs)

    def count(self, step: Predicted) -> None:
        """Count a prediction, unless it failed."""
        if not step.reason:
            self.add(step.sequences)
        self.write()


@contextlib.contextmanager
def metered(out: Path, device: str, jobs: int) -> Iterator[PredictionMeter]:
    """Measure a block; write its cost however it ends."""
    meter = PredictionMeter(out, device, jobs)
    try:
        yield meter
    finally:
        meter.write()
