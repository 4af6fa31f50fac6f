"""Check the shift report on simulated nights: ``python -m benchmarks.shift``.

Nights that nothing was trained on, as they are and spoilt in many ways, get their verdicts and,
where they can be staged at all, a hypnogram, which is held against what was simulated. The table
has a row for each kind of night (share of each verdict, balanced accuracy) and one for each
verdict. The model is that of ``--model``, or a small one that is trained first on other simulated
nights of the same cohorts, with the settings of ``psdnorm demo``; it takes minutes on a processor.

The command fails if fewer than 95 % of the untouched nights are in range, if a flat, 50 times too
large or inverted one is trusted, or if accuracy does not fall from verdict to verdict.
"""

import argparse
import csv
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.fft
import scipy.signal
from numpy.typing import NDArray

from benchmarks import check_table
from psdnorm.demo import PROTOCOL, RECIPE
from psdnorm.errors import RecordingError
from psdnorm.evaluation import balanced_accuracy, confusion_matrix
from psdnorm.io import Recording
from psdnorm.lab.simulate import PlannedNight, Settings, add_nights, plan_nights
from psdnorm.models import from_pretrained
from psdnorm.models.checkpoint import Pretrained
from psdnorm.prepare.recipe import Recipe
from psdnorm.prepare.signals import preprocess
from psdnorm.staging.trust import (
    IN_RANGE,
    NOT_TRUSTED,
    VERDICTS,
    channel_conditions,
    shift_report,
    worst_of,
)
from psdnorm.store import Store
from psdnorm.training import Run, predict_night, train_run
from psdnorm.training.run_folder import WEIGHTS

COHORTS = ("ABC", "CCSHS", "CFS", "MROS", "SHHS", "PHYS")
HELD_OUT = "SOF"
UNTOUCHED = "untouched"
UNTRUSTED = ("one flat channel", "gain 50", "spectrum inverted", "spectrum mirrored")
LEAST_IN_RANGE = 0.95
SHIFTS = (0.0, 2.0, 4.0, 6.0)
TRAINING_SEED = 0
COLUMNS = ("kind", "nights", *VERDICTS, "staged", "balanced_accuracy")
Spoiling = Callable[[NDArray[np.float32], float, np.random.Generator], NDArray[np.floating]]


@dataclass(frozen=True)
class Looked:
    """The verdict on a night, and the balanced accuracy of its hypnogram (NaN without one)."""

    kind: str
    verdict: str
    accuracy: float


def low_passed(hz: float) -> Spoiling:
    """Return a low-pass filter."""
    return lambda x, sfreq, rng: _filtered(x, sfreq, hz, "low")


def high_passed(hz: float) -> Spoiling:
    """Return a high-pass filter."""
    return lambda x, sfreq, rng: _filtered(x, sfreq, hz, "high")


def noisy(uv: float) -> Spoiling:
    """Return a function that adds white noise; its amplitude is that below 30 Hz."""
    return lambda x, sfreq, rng: x + uv * np.sqrt(sfreq / 60) * rng.standard_normal(x.shape)


def one_flat(x: NDArray, sfreq: float, rng: np.random.Generator) -> NDArray:
    """Return a night whose first channel is flat."""
    return np.stack([np.zeros_like(x[0]), *x[1:]])


def inverted(x: NDArray, sfreq: float, rng: np.random.Generator) -> NDArray:
    """Return a night with the spectrum inverted up to 35 Hz and the same power."""
    return _with_density(x, sfreq, lambda hz, density: 1 / density)


def mirrored(x: NDArray, sfreq: float, rng: np.random.Generator) -> NDArray:
    """Return a night with the spectrum mirrored from 0.5 to 30 Hz and the same power."""
    return _with_density(x, sfreq, lambda hz, density: np.interp(30.5 - hz, hz, density))


def swapped(x: NDArray, sfreq: float, rng: np.random.Generator) -> NDArray:
    """Return a night with its channels swapped."""
    return x[::-1]


SPOILT: dict[str, Spoiling] = {
    "channels swapped": swapped,
    "low-pass 15 Hz": low_passed(15),
    "low-pass 8 Hz": low_passed(8),
    "low-pass 4 Hz": low_passed(4),
    "high-pass 1 Hz": high_passed(1),
    "high-pass 4 Hz": high_passed(4),
    "noise 5 µV": noisy(5),
    "noise 20 µV": noisy(20),
    "noise 80 µV": noisy(80),
    "gain 4": lambda x, sfreq, rng: 4 * x,
    "gain 50": lambda x, sfreq, rng: 50 * x,
    "one flat channel": one_flat,
    "spectrum inverted": inverted,
    "spectrum mirrored": mirrored,
}


def _filtered(x: NDArray, sfreq: float, hz: float, kind: str) -> NDArray:
    sections = scipy.signal.butter(4, hz, kind, fs=sfreq, output="sos")
    return scipy.signal.sosfiltfilt(sections, x, axis=1)


def _with_density(
    x: NDArray, sfreq: float, density_of: Callable[[NDArray, NDArray], NDArray]
) -> NDArray:
    """Replace the density of each channel from 0.5 to 35 Hz by a function of it."""
    hz, density = scipy.signal.welch(x, sfreq, nperseg=int(4 * sfreq))
    inside = (hz >= 0.5) & (hz <= 35)
    spectrum = scipy.fft.rfft(x, axis=1)
    all_hz = scipy.fft.rfftfreq(x.shape[1], 1 / sfreq)
    for row, own in zip(spectrum, density, strict=True):
        gain = np.sqrt(density_of(hz[inside], own[inside]) / own[inside])
        row *= np.interp(all_hz, hz[inside], gain, left=0, right=0)
    made = scipy.fft.irfft(spectrum, n=x.shape[1], axis=1)
    return made * x.std(axis=1, keepdims=True) / made.std(axis=1, keepdims=True)


def trained_model(folder: Path, subjects: int, hours: float, epochs: int) -> Pretrained:
    """Train the demo's small U-Sleep with PSDNorm on simulated nights, and return it."""
    nights = plan_nights([*COHORTS, HELD_OUT], subjects, 1, Settings(TRAINING_SEED, hours))
    for _ in add_nights(folder / "store", nights, RECIPE):
        pass
    run = Run("usleep", "psd", hold_out=HELD_OUT)
    store = Store.open(folder / "store")
    protocol = replace(PROTOCOL, max_epochs=epochs)
    train_run(store, run, protocol, folder / "run", device="cpu", keep="weights")
    return from_pretrained(folder / "run" / WEIGHTS)


def look_at(
    model: Pretrained, recipe: Recipe, recording: Recording, kind: str, truth: NDArray[np.int8]
) -> Looked:
    """Return the verdict on a night and its accuracy, if it can be staged."""
    conditions = channel_conditions(recording.signal, recording.sfreq, recording.channels)
    try:
        signals = preprocess(recording, recipe).signals
    except RecordingError:  # no hypnogram is made of what the recipe refuses
        return Looked(kind, worst_of([each.verdict for each in conditions]), np.nan)
    report = shift_report(model, signals, recording.channels, recipe.sfreq, conditions)
    probabilities, _ = predict_night(model, signals, batch_size=8)
    counts = confusion_matrix(truth, probabilities.argmax(axis=1))
    return Looked(kind, report.verdict, float(balanced_accuracy(counts)))


def look_at_all(
    model: Pretrained, cohorts: list[str], nights: int, spoilt: int, hours: float, seed: int
) -> Iterator[Looked]:
    """Examine untouched nights, spoilt ones, and nights of other shifts."""
    recipe = Recipe.from_dict((model.card or {})["recipe"])
    subjects = -(-nights // len(cohorts))
    for shift in (1.0, *SHIFTS):
        settings = Settings(seed, hours, shift)
        planned = sorted(plan_nights(cohorts, subjects, 1, settings), key=lambda n: n.index)
        untouched = shift == 1.0
        for place, night in enumerate(planned[: nights if untouched else spoilt]):
            recording, truth = _simulated(night)
            kind = UNTOUCHED if untouched else f"shift {shift:g}"
            yield look_at(model, recipe, recording, kind, truth)
            for spoiling in SPOILT if untouched and place < spoilt else ():
                rng = np.random.default_rng([seed, place])
                signal = SPOILT[spoiling](recording.signal, recording.sfreq, rng)
                other = replace(recording, signal=np.ascontiguousarray(signal, np.float32))
                yield look_at(model, recipe, other, spoiling, truth)


def _simulated(night: PlannedNight) -> tuple[Recording, NDArray[np.int8]]:
    made = night.simulate()
    source = f"{night.cohort} {night.subject}"
    recording = Recording(made.signal, made.channels, made.sfreq, made.stages, None, source)
    return recording, made.true_stages


def table_of(looked: list[Looked]) -> list[dict[str, str]]:
    """Return a row for each kind of night, and one for each verdict over all of them."""
    kinds = {kind: [n for n in looked if n.kind == kind] for kind in _order(looked)}
    verdicts = {f"all {v}": [n for n in looked if n.verdict == v] for v in VERDICTS}
    rows = []
    for name, nights in (kinds | verdicts).items():
        shares = {v: np.mean([n.verdict == v for n in nights]) if nights else 0 for v in VERDICTS}
        staged = [n.accuracy for n in nights if not np.isnan(n.accuracy)]
        rows.append(
            {"kind": name, "nights": str(len(nights)), "staged": str(len(staged))}
            | {v: f"{share:.3f}" for v, share in shares.items()}
            | {"balanced_accuracy": f"{np.mean(staged):.3f}" if staged else ""}
        )
    return rows


def misses(looked: list[Looked]) -> list[str]:
    """Return a sentence for each claim that does not hold."""
    missed = []
    own = [night.verdict == IN_RANGE for night in looked if night.kind == UNTOUCHED]
    if np.mean(own) < LEAST_IN_RANGE:
        missed.append(f"{np.mean(own):.1%} of the untouched nights are in range")
    for kind in UNTRUSTED:
        trusted = sum(n.verdict != NOT_TRUSTED for n in looked if n.kind == kind)
        if trusted:
            missed.append(f"{trusted} nights of the kind {kind!r} are trusted")
    means = []
    for verdict in VERDICTS:
        found = [n.accuracy for n in looked if n.verdict == verdict and not np.isnan(n.accuracy)]
        means.append(float(np.mean(found)) if found else np.nan)
    if not means[0] > means[1] > means[2]:
        missed.append(f"accuracy goes {means} from verdict to verdict")
    return missed


def _order(looked: list[Looked]) -> list[str]:
    found = dict.fromkeys(night.kind for night in looked)
    return [kind for kind in (UNTOUCHED, *found) if kind in found]


def main(arguments: list[str] | None = None) -> int:
    """Examine the nights, print and write the table; 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="folder of a saved model")
    parser.add_argument("--cohorts", nargs="+", default=list(COHORTS))
    parser.add_argument("--nights", type=int, default=60, help="untouched nights")
    parser.add_argument("--spoilt", type=int, default=6, help="nights of each other kind")
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument(
        "--subjects", type=int, default=8, help="subjects per cohort in the training set"
    )
    parser.add_argument("--epochs", type=int, default=4, help="epochs of training")
    parser.add_argument("--seed", type=int, default=1, help="of the nights; 0 is used for training")
    parser.add_argument("--csv", type=Path, default=Path("shift.csv"))
    chosen = parser.parse_args(arguments)
    check_table(parser, chosen.csv)
    if chosen.seed == TRAINING_SEED and chosen.model is None:
        parser.error(f"--seed {TRAINING_SEED} is that of the nights to train on")
    if chosen.model is None:
        with tempfile.TemporaryDirectory() as folder:
            model = trained_model(Path(folder), chosen.subjects, chosen.hours, chosen.epochs)
    else:
        model = from_pretrained(chosen.model)
    how_many = (chosen.nights, chosen.spoilt, chosen.hours)
    looked = list(look_at_all(model, chosen.cohorts, *how_many, chosen.seed))
    with chosen.csv.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for row in table_of(looked):
            table.writerow(row)
            print("  ".join(f"{column} {row[column]}" for column in COLUMNS), flush=True)
    missed = misses(looked)
    for sentence in missed:
        print(sentence, file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
