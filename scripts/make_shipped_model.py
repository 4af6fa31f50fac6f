"""Make the shipped model: simulate, train on a GPU, choose, and write the checkpoint.

    python scripts/make_shipped_model.py simulate STORE --nights 1600
    psdnorm lodo STORE --norms psd --filter-size 9 --norm-depth 6 --hold-out named --seeds 1 --patience 8 --max-epochs 32 --keep weights --out RUNS
    python scripts/make_shipped_model.py export RUNS/cells/NAME src/psdnorm/staging/shipped

The training nights are of random (`wide`) laboratories; the model is chosen by its balanced
accuracy on nights of the cohorts' profiles, of which none is in the training set. No real recording
is read.
"""  # noqa: E501

import argparse
from functools import partial
from pathlib import Path

from psdnorm.io import Recording
from psdnorm.lab.simulate import (
    PROFILES,
    Settings,
    as_recording,
    plan_nights,
    prepared_night,
    wide_recording,
)
from psdnorm.models import from_pretrained
from psdnorm.prepare import RECIPES
from psdnorm.runtime import run_all
from psdnorm.store import Store
from psdnorm.training import WEIGHTS

RECIPE = RECIPES["paper"]  # µV: a long day before the night must not change its scale
SEED = 2026
HELD_OUT = "named"
# splits are drawn within cohorts, class weights over all: five cohorts serve like one
N_COHORTS = 5
LEARNED_FROM = (
    "nights that were simulated, each in a clinic of its own "
    "(psdnorm.lab.simulate); no patient's recording. The simulator's parameters are "
    "statistics of 9 (spectra) and 19 (hypnograms) Sleep-EDF subjects, SC4001's not among them"
)


def simulate(folder: Path, n_nights: int, n_named: int, hours: float, jobs: int) -> None:
    """Simulate the training nights, and those that choose the model, into a store."""
    store = Store.create(folder, RECIPE.to_dict(), RECIPE.layout())
    numbers = [("wide", number) for number in range(n_nights)]
    numbers += [(name, number) for name in PROFILES for number in range(n_named)]
    made = run_all(partial(_add, store, hours), numbers, jobs=jobs, lost=_lost)
    for done, _ in enumerate(made, start=1):
        if done % 50 == 0 or done == len(numbers):
            print(f"{done} of {len(numbers)} nights", flush=True)
    store.finish()


def _add(store: Store, hours: float, which: tuple[str, int]) -> tuple[str, int]:
    name, number = which
    if name == "wide":
        recording = wide_recording(number, SEED, hours=hours)
        cohort, subject = f"wide{number % N_COHORTS}", f"{number:04d}"
    else:
        recording = _of_profile(name, number, hours)
        cohort, subject = HELD_OUT, f"{name}-{number}"
    source = f"scripts/make_shipped_model.py, seed {SEED}"
    name = f"{cohort}-{subject}"
    store.add(prepared_night(recording, RECIPE, name, cohort, subject, source=source))
    return which


def _of_profile(name: str, number: int, hours: float) -> Recording:
    planned = plan_nights([name], number + 1, 1, Settings(SEED, hours, 1.0))
    return as_recording(planned[-1])


def _lost(which: tuple[str, int], reason: str) -> tuple[str, int]:
    raise SystemExit(f"night {which} was not made: {reason}")


def export(run: Path, folder: Path) -> None:
    """Write the model of a run with the spread of its training nights."""
    model = from_pretrained(run / WEIGHTS)
    card = model.card or {}
    if not card.get("training_spread"):
        raise SystemExit(f"{run / WEIGHTS} has no training_spread: stage could not judge a night")
    facts = dict(card["training_data"])
    model.save_pretrained(
        folder,
        training_data={**facts, "what": LEARNED_FROM},
        licence="BSD-3-Clause",
    )


def main() -> None:
    """Run the step that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    making = steps.add_parser("simulate")
    making.add_argument("store", type=Path)
    making.add_argument("--nights", type=int, default=1600)
    making.add_argument("--named", type=int, default=3, help="nights of each profile")
    making.add_argument("--hours", type=float, default=8.0)
    making.add_argument("--jobs", type=int, default=2)
    shipping = steps.add_parser("export")
    shipping.add_argument("run", type=Path, help="the run that is chosen, RUNS/cells/NAME")
    shipping.add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.step == "simulate":
        simulate(given.store, given.nights, given.named, given.hours, given.jobs)
    else:
        export(given.run, given.folder)


if __name__ == "__main__":
    main()
