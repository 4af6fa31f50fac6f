"""Run a dissection: nights with troubles, weights, cost."""

import contextlib
import functools
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psdnorm
from psdnorm.errors import ArgumentError, CheckpointError, PsdnormError, RecordingError, StoreError
from psdnorm.experiments import ExperimentFolder, PieceMeter, commit_of
from psdnorm.io import Recording
from psdnorm.lab.dissect.settings import (
    PREDICTED,
    WHICH,
    claim_dissection,
    has_predicted,
    predicted_folder,
    predicting_order,
    weights_of,
)
from psdnorm.lab.dissect.troubles import NAME, UNSHIFTED_PROFILE, Condition, simulate_condition
from psdnorm.lab.simulate import check_length
from psdnorm.prepare import Recipe, preprocess
from psdnorm.report import Trained, load_trained
from psdnorm.runtime import read_json, run_all, write_json
from psdnorm.store import Night, Store
from psdnorm.training import (
    CONFIG,
    Network,
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


class Made(NamedTuple):
    """What became of a night."""

    condition: Condition
    subject: str
    reason: str = ""  # a sentence where the recipe refuses it, else ""

    @property
    def recording(self) -> str:
        """Its name in the store."""
        return f"{self.condition.name}-{self.subject}"


@dataclass(frozen=True)
class TestNights:
    """Nights of the same subjects under several conditions; in a store, a condition is a cohort."""

    __test__ = False  # pytest takes every class of such a name for its own

    folder: Path  # of the store
    recipe: Recipe
    subjects: int
    hours: float
    seed: int

    def check(self) -> None:
        """Refuse what cannot be simulated, before anything is written."""
        if type(self.subjects) is not int or self.subjects < 1:
            raise ArgumentError(f"subjects is {self.subjects!r}, expected a whole number from 1 on")
        check_length(UNSHIFTED_PROFILE, 0, self.seed, self.hours)
        n_channels = len(UNSHIFTED_PROFILE.channels)
        if self.recipe.n_channels != n_channels:
            raise ArgumentError(
                f"the recipe {self.recipe.name!r} has {self.recipe.n_channels} channels, expected "
                f"the {n_channels} of a simulated night"
            )

    def named(self, conditions: Sequence[Condition]) -> list[Made]:
        """Return the nights of some conditions, those of a subject together."""
        names = [f"{number:03}" for number in range(self.subjects)]
        return [Made(condition, name) for name in names for condition in conditions]

    def make(self, conditions: Sequence[Condition], jobs: int = 1) -> Iterator[Made]:
        """Simulate and prepare the nights of some conditions; those that are there stay."""
        if jobs < 1:
            raise ArgumentError(f"jobs is {jobs}, expected at least 1")
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
        # trimmed as a cohort that no recipe names
        prepared = preprocess(recording, self.recipe, NAME)
        return Night(
            made.recording,
            made.condition.name,
            made.subject,
            prepared.signals,
            prepared.stages,
            channels=recording.channels,
            flags=prepared.flags,
            simulated=True,
            source=f"psdnorm dissect, seed {self.seed}, {self.hours:g} h",
            age=round(found.age_y, 1),
            sex=found.sex,
        )


def _add(store: Store, nights: TestNights, made: Made) -> Made:
    if store.known(made.recording) is not None:
        return made
    try:
        store.add(nights.night(made))
    except RecordingError as error:  # it would be refused the next time, too
        return made._replace(reason=str(error))
    return made


def _lost(made: Made, reason: str) -> Made:
    raise StoreError(f"the test night {made.recording} was not made: {reason}")


def protocol_of(runs: ExperimentFolder) -> Protocol:
    """Return how the cells of a folder of runs were trained."""
    return Protocol.from_json(runs.settings()["protocol"])


def trained_for(runs: ExperimentFolder, cell: Run, store: Store) -> Trained:
    """Load the network of a cell; refuse one of another cell, or for other nights."""
    trained = load_trained(runs.folder(cell))
    trained.check_takes(store)
    alignment_of(trained.training, store.layout.n_channels, trained.folder)
    sized = with_size(cell, trained.arm.filter_size)
    expected = throwaway_model(sized, protocol_of(runs), store.layout).config
    found = trained.model.config
    for name in {**expected, **found}:
        if found.get(name) != expected.get(name):
            raise CheckpointError(
                f"{trained.folder} has a network whose {name} is {found.get(name)!r:.80}, expected "
                f"{expected.get(name)!r:.80} as {cell.name} has it"
            )
    _check_training(trained, cell)
    return trained


def _check_training(trained: Trained, cell: Run) -> None:
    """Refuse a network of the same shape that learned from other nights, or aligned ones."""
    said, own = trained.training.get("cell"), cell.to_json()
    for name in ("norm", "hold_out", "balanced", "seed"):
        if isinstance(said, dict) and said.get(name, own[name]) != own[name]:
            raise CheckpointError(
                f"{trained.folder} has a network that was trained with {name} "
                f"{said[name]!r:.80}, expected {own[name]!r} as {cell.name} has it"
            )


NIGHTS = "nights"


class Predicted(NamedTuple):
    """What became of one network under one condition."""

    cell: Run
    condition: Condition
    reason: str = ""  # a sentence where it failed, else ""
    sequences: int = 0  # in which its nights were predicted; 0 where it failed


@dataclass(frozen=True)
class Dissection:
    """Networks, conditions, and the folder for what comes of them."""

    runs: ExperimentFolder  # whose networks they are
    out: Path
    cells: tuple[Run, ...]  # from psdnorm.lab.dissect.settings.find_models
    conditions: tuple[Condition, ...]  # the unshifted one first
    subjects: int = 10  # simulated test subjects, the same in all conditions
    hours: float = 8.0  # length of their nights
    seed: int = 0  # of their simulation
    # those of cells that count with what they predicted: their weights are damaged
    unable: frozenset[Run] = frozenset()

    @property
    def recipe(self) -> Recipe:
        """How the nights of the networks' training were prepared."""
        path = self.runs.folder(self.cells[0]) / CONFIG
        if not path.exists():  # an AdaBN cell that was asked for, but not run
            path = self.runs.folder(self.cells[0].base) / CONFIG
        try:
            return Recipe.from_dict(read_json(path)["recipe"])
        except (KeyError, TypeError, ArgumentError) as error:
            raise ArgumentError(f"{path} holds no recipe that psdnorm prepares: {error}") from error

    @property
    def nights(self) -> TestNights:
        """The test nights."""
        return TestNights(
            self.out / NIGHTS, self.recipe, self.subjects, float(self.hours), self.seed
        )

    def folder(self, cell: Run, condition: Condition) -> Path:
        """Return where the scores of a network under a condition are."""
        return predicted_folder(self.out, cell, condition)

    def is_done(self, cell: Run, condition: Condition) -> bool:
        """Tell whether a network has predicted a condition."""
        return has_predicted(self.out, cell, condition)

    def left(self) -> list[tuple[Run, Condition]]:
        """Return what is still to be predicted, by networks whose weights are there."""
        able = [
            cell
            for cell in self.cells
            if cell not in self.unable and weights_of(self.runs, cell).exists()
        ]
        return [(a, b) for a in able for b in self.conditions if not self.is_done(a, b)]

    def damaged(self) -> dict[Run, str]:
        """Look for networks whose weights cannot be used, before any night is simulated."""
        changed = [cell for cell in self.cells if self._has_changed(cell)]
        needed = dict.fromkeys(cell.base for cell in [*(cell for cell, _ in self.left()), *changed])
        if not needed:
            return {}
        recipe, reasons = self.recipe, dict[Run, str]()
        nights = Store.plan(self.out / NIGHTS, recipe.to_dict(), recipe.layout())
        for base in needed:
            try:
                trained_for(self.runs, base, nights)
            except PsdnormError as error:
                reasons[base] = str(error)
        return {cell: reasons[cell.base] for cell in self.cells if cell.base in reasons}

    def claim(self) -> None:
        """Write down how nights are simulated; refuse a folder of something else."""
        nights = {
            "subjects": self.subjects,
            "hours": float(self.hours),
            "seed": self.seed,
            "recipe": self.recipe.to_dict(),
        }
        kinds = {condition.kind for condition in self.conditions}
        claim_dissection(self.out, nights, kinds, to_predict=bool(self.left()))
        for cell in self.cells:
            self._claim_weights(cell)

    def _claim_weights(self, cell: Run) -> None:
        if cell in self.unable:
            return
        path = self._which(cell)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, self._own_weights(cell))
        elif self._has_changed(cell):
            raise ArgumentError(
                f"{path.parent} is of other weights than {weights_of(self.runs, cell)}: delete it, "
                "or give another folder"
            )

    def _which(self, cell: Run) -> Path:
        return self.out / PREDICTED / cell.name / WHICH

    def _own_weights(self, cell: Run) -> dict[str, Any]:
        path = weights_of(self.runs, cell)
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
        return {"cell": cell.to_json(), "sha256": digest}

    def _has_changed(self, cell: Run) -> bool:
        """Tell whether a network predicted with other weights than it has now, if it has any."""
        path = self._which(cell)
        if not path.exists() or not weights_of(self.runs, cell).exists():
            return False
        before = read_json(path)
        try:
            return before != self._own_weights(cell)
        except CheckpointError:  # no longer what it predicted with, whatever it is
            return True

    def make_nights(self, jobs: int = 1) -> Iterator[Made]:
        """Simulate what the predictions that are left need; see :meth:`TestNights.make`."""
        needed = dict.fromkeys(condition for _, condition in self.left())
        return self.nights.make(list(needed), jobs)

    def predict(
        self, *, device: str = "auto", fast: bool | str = "auto", keep: bool = False
    ) -> Iterator[Predicted]:
        """Predict all that is left, network by network; a failure stops no other."""
        left = self.left()
        if not left:
            return
        place = resolve_device(device)
        store = self.nights.open()
        for unit in predicting_order(self.cells):
            todo = [(cell, condition) for cell, condition in left if cell in unit]
            if not todo:
                continue
            with quiet_libraries(), reproducible(place):
                try:
                    predictor = self._predictor(unit[0].base, store, place, fast)
                except PsdnormError as error:
                    yield from (Predicted(*each, str(error)) for each in todo)
                    continue
                for cell, condition in todo:
                    yield self._attempt(predictor, cell, condition, keep)

    def forget_nights(self) -> None:
        """Delete the test nights if nothing is left to predict: a seed brings them back."""
        if not self.left():
            shutil.rmtree(self.out / NIGHTS, ignore_errors=True)

    def _predictor(
        self, cell: Run, store: Store, device: "torch.device", fast: bool | str
    ) -> "_Predictor":
        trained, protocol = trained_for(self.runs, cell, store), protocol_of(self.runs)
        sized = with_size(cell, trained.arm.filter_size)
        network = network_for(sized, protocol, store.layout, device, fast=fast)
        network.model.load_state_dict(trained.model.state_dict())
        network.model.eval()
        return _Predictor(trained, network, protocol, store, device)

    def _attempt(
        self, predictor: "_Predictor", cell: Run, condition: Condition, keep: bool
    ) -> Predicted:
        index = predictor.store.index
        index = index[index["cohort"] == condition.name].reset_index(drop=True)
        if index.empty:
            return Predicted(cell, condition, "no night of it could be made")
        folder = self.folder(cell, condition)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_outcome(folder, index, predictor.predictions(cell, index), keep=keep)
        except PsdnormError as error:
            return Predicted(cell, condition, str(error))
        sequences = predicted_sequences(index, predictor.protocol)
        return Predicted(cell, condition, sequences=sequences)


@dataclass(frozen=True)
class _Predictor:
    """A network with its weights, and the nights as it takes them."""

    trained: Trained
    network: Network
    protocol: Protocol
    store: Store
    device: "torch.device"

    def predictions(self, cell: Run, index: "pd.DataFrame") -> Iterator[NightPrediction]:
        source = self.trained.source(self.store, self.device)
        found: Iterator[NightPrediction]
        if cell.is_adapted:
            found = adapted_predictions(
                self.network, source, index, self.protocol, cell.layers, device=self.device
            )
        else:
            found = predict_nights(
                self.network.forward,
                source,
                index,
                length=self.protocol.length,
                stride=self.protocol.stride,
                batch_size=self.protocol.batch_size,
                device=self.device,
            )
        return finite_predictions(source, index, found)


class PredictionMeter(PieceMeter):
    """Measures a piece, and writes it down after every prediction."""

    def __init__(self, out: Path, device: str, jobs: int) -> None:
        code = commit_of(Path(psdnorm.__file__), only_tracked=True)
        super().__init__(out, device, code, counted="predictions", jobs=jobs)

    def count(self, step: Predicted) -> None:
        """Count a network under a condition, unless it failed."""
        if not step.reason:
            self.add(step.sequences)
        self.write()


@contextlib.contextmanager
def metered(out: Path, device: str, jobs: int) -> Iterator[PredictionMeter]:
    """Measure a block, which is written down however it ends."""
    meter = PredictionMeter(out, device, jobs)
    try:
        yield meter
    finally:
        meter.write()
