"""Figures of nights: predicted stages, and spectra before and after the norms."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from psdnorm import ops
from psdnorm.batches import LENGTH
from psdnorm.constants import EPOCH_S, STAGES
from psdnorm.errors import PsdnormError, StoreError
from psdnorm.evaluation import EPOCH, PROBABILITIES, balanced_accuracy, confusion_matrix
from psdnorm.experiments import ExperimentFolder
from psdnorm.functional import is_number
from psdnorm.models import Pretrained, USleep
from psdnorm.present import STAGE_COLOURS, VERMILION, CannotDraw, Drawing, new_canvas
from psdnorm.report.contest import METRIC, Contest
from psdnorm.report.results import Results
from psdnorm.report.trained_network import load_trained
from psdnorm.runtime import listed, parquet_errors_as
from psdnorm.store import Store
from psdnorm.training import PREDICTIONS, WEIGHTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_NIGHTS = "Best, median and worst night"
_COLUMNS = [*EPOCH, "recording", "central", "true", *PROBABILITIES]
STAGE_LEVELS = {"W": 4, "REM": 3, "N1": 2, "N2": 1, "N3": 0}  # of a hypnogram
_PREFERRED = ("psd", "psd-white")


@dataclass(frozen=True)
class ShownNight:
    """A night to show."""

    rank: str  # "best", "median" or "worst"
    cohort: str
    subject: str
    recording: str
    score: float  # balanced accuracy of its central epochs
    true: np.ndarray
    probabilities: np.ndarray


def draw_hypnodensity(compared: Iterable[Contest]) -> Drawing:
    """Draw a night of the best, the median and the worst subject whose predictions were kept."""
    chosen = next(filter(None, map(_with_predictions, compared)), None)
    if chosen is None:
        raise CannotDraw(
            f"{_NIGHTS}: no predictions were kept (psdnorm lodo --keep predictions keeps them)."
        )
    contest, norm, results = chosen
    nights, missing = _nights(results)
    others = _others_nights(contest, norm)
    if not nights:
        raise CannotDraw(f"{_NIGHTS}: no predictions can be read: {'; '.join(missing)}.")
    canvas = new_canvas(8.5, 2.15 * len(nights) + 0.7)
    axes = canvas.subplots(2 * len(nights), height_ratios=[1, 1.7] * len(nights))
    for place, night in enumerate(nights):
        above, below = axes[2 * place : 2 * place + 2]
        edges_h = np.arange(len(night.true) + 1) * EPOCH_S / 3600
        score = f"balanced accuracy {100 * night.score:.2f} %"
        draw_hypnogram(above, night.true, edges_h, label="true stage")
        above.tick_params(labelbottom=False)
        above.set_title(f"{night.rank}: {night.cohort} {night.subject}, {score}", loc="left")
        draw_probabilities(below, night.probabilities, edges_h)
    axes[-1].set_xlabel("time from the start of the recording (h)")
    handles, names = axes[1].get_legend_handles_labels()
    canvas.legend(
        handles[::-1], names[::-1], loc="outside right center", title="probability", fontsize=8
    )
    seed = results.runs["seed"].iloc[0]
    return Drawing(
        name=f"nights-{contest.key}",
        title=f"{_NIGHTS}: {contest.labels[norm]}, {contest.name}",
        words=" ".join(_night_words(night) for night in nights),
        caption="Above: stages as scored; below: probabilities, stacked. Subjects are ranked by "
        f"balanced accuracy among all {len(results.subjects):,} held-out subjects of seed {seed} "
        "whose predictions were kept; of a subject with several nights, the best, the middle and "
        f"the worst is shown. Numbers are of the night's central epochs. {others}".rstrip(),
        canvas=canvas,
        missing=[f"{_NIGHTS}: {said}" for said in (*(f"{m}." for m in missing), others) if said],
    )


def _others_nights(contest: Contest, shown: str) -> str:
    """Return a sentence on how to see PSDNorm's nights, if another norm's are shown."""
    without = [contest.labels[norm] for norm in _PREFERRED if norm in contest.labels]
    if shown in _PREFERRED or not without:
        return ""
    return (
        f"{contest.labels[shown]} is shown, whichever norm is best: {listed(without)} kept no "
        "predictions (psdnorm lodo --keep predictions)."
    )


def _with_predictions(contest: Contest) -> tuple[Contest, str, Results] | None:
    """Return the norm to show, and its runs of the seed with the most predictions."""
    runs = contest.results.runs
    kept = runs[[(Path(folder) / PREDICTIONS).exists() for folder in runs["folder"]]]
    order = [*_PREFERRED, *contest.labels]
    norm = next((name for name in order if (kept["norm"] == name).any()), None)
    if norm is None:
        return None
    own = kept[kept["norm"] == norm]
    seed = own["seed"].value_counts().sort_index().idxmax()
    own = own[own["seed"] == seed]
    subjects = contest.results.subjects
    subjects = subjects[subjects["run"].isin(own["run"])]
    return contest, norm, replace(contest.results, runs=own, subjects=subjects)


def _nights(results: Results) -> tuple[list[ShownNight], list[str]]:
    """Return the nights to show, and a sentence for each run with damaged predictions."""
    subjects = results.subjects.dropna(subset=[METRIC])
    folders = results.runs.set_index("run")["folder"]
    missing: list[str] = []
    while len(subjects):
        ordered = subjects.sort_values([METRIC, "cohort", "subject"], ascending=[False, True, True])
        nights, n = [], len(ordered)
        ranks = {"best": 0, "median": n // 2, "worst": n - 1}
        if n < 3:
            ranks = {"only": 0} if n == 1 else {"best": 0, "worst": 1}
        for rank, place in ranks.items():
            row = ordered.iloc[place]
            path = folders[row["run"]] / PREDICTIONS
            try:
                nights.append(_night(path, rank, row["cohort"], row["subject"]))
            except StoreError as error:
                missing.append(str(error))
                subjects = subjects[subjects["run"] != row["run"]]
                break
        else:
            return nights, missing
    return [], missing


def _night(path: Path, rank: str, cohort: str, subject: str) -> ShownNight:
    """Return the best, worst or middle night of a subject, by the rank of the subject."""
    table = read_subject(path, cohort, subject)
    found = []
    for recording, own in table.groupby("recording", sort=True):
        night = own.sort_values("epoch")
        p = night[PROBABILITIES].to_numpy(float)
        true = night["true"].to_numpy(int)
        counted = np.where(night["central"], true, -1)
        score = float(balanced_accuracy(confusion_matrix(counted, p.argmax(axis=1))))
        found.append(ShownNight(rank, cohort, subject, str(recording), score, true, p))
    known = [night for night in found if np.isfinite(night.score)] or found
    known.sort(key=lambda night: -night.score)
    return known[{"best": 0, "worst": -1}.get(rank, len(known) // 2)]


def read_subject(path: Path, cohort: str, subject: str) -> pd.DataFrame:
    """Read the predictions of one subject, without reading those of others."""
    wanted = [("cohort", "=", cohort), ("subject", "=", subject)]
    with parquet_errors_as(path):
        schema = pq.read_schema(path)
        absent = [name for name in _COLUMNS if name not in schema.names]
        if absent:
            raise StoreError(f"{path} has no columns {', '.join(absent)}")
        # each night is its own row group, whose statistics name the subject
        table = pq.read_table(path, columns=_COLUMNS, filters=wanted).to_pandas()
    if table.empty:
        raise StoreError(f"{path} has no epoch of {cohort} {subject}")
    if not np.isfinite(table[PROBABILITIES].to_numpy()).all():
        raise StoreError(f"{path} has probabilities of {cohort} {subject} that are not finite")
    return table


def draw_hypnogram(axes: "Axes", stages: np.ndarray, edges: np.ndarray, label: str) -> None:
    """Draw a hypnogram; unscored epochs are gaps."""
    levels = np.array([STAGE_LEVELS[stage] for stage in STAGES], float)
    y = np.where(stages >= 0, levels[stages], np.nan)
    axes.stairs(y, edges, baseline=None, color="black", lw=0.9, label=label)
    axes.set_yticks(list(STAGE_LEVELS.values()), list(STAGE_LEVELS))
    axes.set_ylim(-0.5, 4.5)
    axes.set_xlim(edges[0], edges[-1])


def draw_probabilities(axes: "Axes", probabilities: np.ndarray, edges: np.ndarray) -> None:
    """Draw the probabilities of stages on top of each other, each area labelled with its stage."""
    below = np.zeros(len(probabilities))
    for stage, colour in STAGE_COLOURS.items():  # from the bottom
        above = below + 100 * probabilities[:, STAGES.index(stage)]
        look: dict[str, Any] = {"fill": True, "color": colour, "lw": 0, "zorder": -1}
        axes.stairs(above, edges, baseline=below, label=stage, **look)
        below = above
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 50, 100])
    axes.set_rasterization_zorder(0)  # all areas in one image
    axes.set_ylabel("probability (%)")


def _night_words(night: ShownNight) -> str:
    hours = len(night.true) * EPOCH_S / 3600
    scored = night.true >= 0
    right = (night.probabilities.argmax(axis=1) == night.true)[scored]
    agreed = f", {100 * right.mean():.2f} % of all its scored epochs right" if len(right) else ""
    return (
        f"The {night.rank} one, {night.cohort} {night.subject}, of {hours:.2f} hours: balanced "
        f"accuracy {100 * night.score:.2f} %{agreed}."
    )


BLOCKS = 3
NIGHTS = 3  # per cohort
_SEGMENT_S = 4.0
_FLOOR = 1e-12  # of power, so that a dead channel is very low instead of minus infinity in dB


@dataclass(frozen=True)
class Spectrum:
    """Mean PSDs of cohorts at one place of a network."""

    # power averaged over channels, in dB averaged over nights; (n_cohorts, F), the columns are the
    # frequencies in Hz above 0 and up to the low-pass
    decibels: pd.DataFrame

    @property
    def frequencies_hz(self) -> NDArray[np.floating]:
        return self.decibels.columns.to_numpy()

    def distance(self, cohort: str) -> float:
        """Return the mean distance of a cohort from the mean of the others, in dB."""
        others = self.decibels.drop(index=cohort).mean()
        return float((self.decibels.loc[cohort] - others).abs().mean())


def _chosen_nights(store: Store) -> dict[str, list[str]]:
    """Return a few recordings of every cohort, spread over its index."""
    found = {}
    for cohort, rows in store.index.groupby("cohort", sort=True):
        recordings = sorted(rows["recording"])
        at = np.linspace(0, len(recordings) - 1, min(NIGHTS, len(recordings))).astype(int)
        found[str(cohort)] = [recordings[place] for place in at]
    return found


def passband_hz(store: Store) -> float:
    """Return the low-pass of a store's recipe; infinity if it has none."""
    found: Any = store.recipe.get("lowpass_hz")
    return float(found) if is_number(found, 0, math.inf) else math.inf


def spectra_of(
    folder: Path, store: Store, nights: dict[str, list[str]]
) -> tuple[list[Spectrum], list[str]]:
    """Measure spectra at the input of a trained network and after each of its first norms.

    Also returns a sentence for each night that cannot be read.
    """
    trained = load_trained(folder / WEIGHTS)
    model, source = trained.model, trained.source(store, torch.device("cpu"))
    measured: dict[str, list[list[pd.Series]]] = {}
    missing = []
    for cohort, recordings in nights.items():
        for recording in recordings:
            try:
                x = _middle(source, recording)
                levels = [_decibels(rows, rate) for rate, rows in _places(model, x)]
            except StoreError as error:
                missing.append(str(error))
                continue
            measured.setdefault(cohort, []).append(levels)
    if not measured:
        raise StoreError(f"{store.path} has no night that can be read")
    cohorts = [[*zip(*nights_of, strict=True)] for nights_of in measured.values()]
    spectra = []
    for at_place in zip(*cohorts, strict=True):
        means = [pd.concat(levels, axis=1).mean(axis=1) for levels in at_place]
        table = pd.DataFrame(means, index=[*measured])
        # above it, only rounding noise is left
        spectra.append(Spectrum(table.loc[:, table.columns <= passband_hz(store)]))
    return spectra, missing


def _middle(store: Store, recording: str) -> Tensor:
    """Return one sequence from the middle of a night, (1, S, C, T)."""
    n_epochs = len(store.signals(recording))
    length = min(LENGTH, n_epochs)
    signals, _ = store.read(recording, (n_epochs - length) // 2, length)
    if not np.isfinite(signals).all():
        raise StoreError(f"recording {recording!r} of {store.path} has samples that are not finite")
    return torch.from_numpy(signals).unsqueeze(0)


@torch.no_grad()
def _places(model: Pretrained, x: Tensor) -> Iterator[tuple[float, Tensor]]:
    """Yield the rate in Hz and the rows (C, L) of the input and after each first block's norm."""
    config: dict[str, Any] = model.config
    rate = float(config["sfreq"])
    rows = x.transpose(1, 2).flatten(2)  # (1, C, S · T)
    yield rate, rows[0]
    if isinstance(model, USleep):
        for encode in model.encoder_blocks[:BLOCKS]:
            rows, before_pooling = encode(rows)
            yield rate, before_pooling[0]
            rate /= 2
        return
    blocks: Any = model.blocks
    for place, stride in enumerate(config["strides"][:BLOCKS]):
        rows = blocks[3 * place : 3 * place + 3](rows)  # convolution, ELU, norm
        rate /= stride
        yield rate, rows[0]


def _decibels(rows: Tensor, rate: float) -> "pd.Series[float]":
    """Return the one-sided density of the mean over channels in dB, by frequency in Hz."""
    size = max(4, round(_SEGMENT_S * rate))
    psd = ops.welch_psd(ops.center(rows.double()), size, "hann").mean(dim=0)
    bins = np.arange(1, (size + 1) // 2)  # between 0 and half the rate
    return pd.Series(10 * np.log10(2 * psd.numpy()[bins] / rate + _FLOOR), bins * (rate / size))


_SPECTRA = "Spectra before and after the first norms"
_GREYS = ("#222222", "#777777", "#B0B0B0")
_STYLES = ("-", "--", ":")


def draw_spectra(contest: Contest, store: Store | None) -> Drawing:
    """Draw mean spectra of every cohort at the input and after the norms of the first blocks."""
    what = f"{_SPECTRA} ({contest.name})"
    runs = contest.results.runs
    runs = runs[[(Path(folder) / WEIGHTS).is_dir() for folder in runs["folder"]]]
    if runs.empty:
        raise CannotDraw(f"{what}: no weights were kept (psdnorm lodo --keep weights keeps them).")
    if store is None:
        raise CannotDraw(f"{what}: no store of nights was given.")
    # of the cohort and seed for which the most norms have weights
    runs = max((group for _, group in runs.groupby(["seed", "hold_out"])), key=len)
    hold_out, seed = str(runs["hold_out"].iloc[0]), int(runs["seed"].iloc[0])
    differs = ExperimentFolder(contest.results.path).other_nights(store)
    if differs is not None:
        raise CannotDraw(f"{what}: the runs were begun with {differs} in {store.path}.")
    nights = _chosen_nights(store)
    found: dict[str, list[Spectrum]] = {}
    missing: list[str] = []
    for norm in contest.labels:
        for folder in runs.loc[runs["norm"] == norm, "folder"]:
            try:
                found[norm], unread = spectra_of(Path(folder), store, nights)
                missing += [f"{_SPECTRA}: {sentence}." for sentence in unread]
            except PsdnormError as error:
                missing.append(f"{_SPECTRA}: {error}.")
    found = {norm: each for norm, each in found.items() if hold_out in each[0].decibels.index}
    if not found:
        raise CannotDraw(f"{what}: {' '.join(missing) or f'no night of {hold_out} can be read.'}")
    without = [label for norm, label in contest.labels.items() if norm not in found]
    said = f"Not drawn, as no weights were kept: {listed(without)}. " if without else ""
    if math.isfinite(passband_hz(store)):
        said += (
            f"Frequencies above the recipe's low-pass of {passband_hz(store):g} Hz, where little "
            "but rounding is left, are neither drawn nor counted. "
        )
    return Drawing(
        name=f"spectra-{contest.key}",
        title=f"{_SPECTRA}: {contest.name}, {hold_out} held out",
        words=_spectra_words(found, hold_out, contest.labels),
        caption=f"Networks of seed {seed}. Up to {NIGHTS} nights of each cohort, 35 epochs from "
        "the middle of each. One line per cohort: power, averaged over channels (after a block, "
        f"over features), in dB, averaged over nights. The numbers say how far the "
        f"held-out cohort is from the mean of the others. {said}Blocks are drawn at "
        "their own rate, so that frequencies end earlier with each block.",
        canvas=_draw_columns(found, hold_out, contest.labels),
        missing=list(dict.fromkeys(missing)),
    )


def _draw_columns(
    found: dict[str, list[Spectrum]], hold_out: str, labels: dict[str, str]
) -> "Canvas":
    rows = max(len(spectra) for spectra in found.values())
    canvas = new_canvas(1.75 * len(found) + 1.9, 1.55 * rows + 0.9)
    table = canvas.subplots(rows, len(found), squeeze=False, sharey="row", sharex="row")
    for column, (norm, spectra) in zip(table.T, found.items(), strict=True):
        column[0].set_title(labels[norm], loc="left")
        for axes, spectrum in zip(column, spectra, strict=False):
            _draw_cohorts(axes, spectrum, hold_out)
        for unused in column[len(spectra) :]:
            unused.remove()
    for place, axes in enumerate(table[:, 0]):
        axes.set_ylabel(f"block {place}\npower (dB)" if place else "input\npower (dB)")
    canvas.supxlabel("frequency (Hz)", fontsize=9)
    handles, names = table[0, 0].get_legend_handles_labels()
    names = [f"{name}, held out" if name == hold_out else name for name in names]
    canvas.legend(handles, names, loc="outside right center")
    return canvas


def _draw_cohorts(axes: "Axes", spectrum: Spectrum, hold_out: str) -> None:
    others = spectrum.decibels.drop(index=hold_out)
    hz = spectrum.frequencies_hz
    for place, (cohort, levels) in enumerate(others.iterrows()):
        colour, line = _GREYS[place % 3], _STYLES[place // 3 % 3]
        axes.plot(hz, levels, color=colour, ls=line, lw=0.9, label=str(cohort))
    axes.plot(hz, spectrum.decibels.loc[hold_out], color=VERMILION, lw=1.8, label=hold_out)
    axes.set_xlim(0, hz[-1])
    axes.locator_params(axis="x", nbins=4)
    axes.set_title(f"{spectrum.distance(hold_out):.1f} dB", loc="right", fontsize=8)


def _spectra_words(found: dict[str, list[Spectrum]], hold_out: str, labels: dict[str, str]) -> str:
    sentences = []
    for norm, spectra in found.items():
        distances = [spectrum.distance(hold_out) for spectrum in spectra]
        after = listed([f"{d:.2f} dB after block {n}" for n, d in enumerate(distances[1:], 1)])
        sentences.append(f"{labels[norm]}: {distances[0]:.2f} dB in the input, {after}.")
    return (
        f"How far the spectrum of the held-out {hold_out} is from the mean of the other cohorts, "
        f"mean over frequencies. {' '.join(sentences)}"
    )
