"""The page of a staged night: verdict, the night, its statistics, how far to trust it."""

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import psdnorm
from psdnorm.constants import STAGES, UNSCORED
from psdnorm.present import Page
from psdnorm.staging.hypnogram_figures import (
    as_png,
    draw_distances,
    draw_spectra,
    night_png,
    printable,
)
from psdnorm.staging.result import StagedNight
from psdnorm.staging.shift import NOT_TRUSTED, UNUSUAL, Distance, ShiftReport
from psdnorm.staging.sleep_statistics import Agreement
from psdnorm.staging.words import (
    UNKNOWN,
    picture_words,
    sleep_words,
    statistics_rows,
    time_words,
    verdict_words,
)

_KINDS = {UNUSUAL: "caution", NOT_TRUSTED: "alarm"}
_SHOWN_DISAGREEMENTS = 20


def write_page(path: str | Path, night: StagedNight, agreement: Agreement | None = None) -> None:
    """Write the page of a night: one HTML file that opens from disk and asks nothing of a network.

    Parameters
    ----------
    path : str or Path
    night : StagedNight
    agreement : Agreement, optional
        With a human scoring of the same night.
    """
    night_page(night, agreement).write(path)


def night_page(night: StagedNight, agreement: Agreement | None = None) -> Page:
    """Return the page of a night.

    Parameters
    ----------
    night : StagedNight
    agreement : Agreement, optional
        With a human scoring of the same night.
    """
    page = Page(f"Staging of {printable(night.source)}", contents=True, notice=night.notice)
    page.heading("Verdict")
    verdict, *reasons = verdict_words(night.shift)
    part = page.part().text(verdict).items(reasons).text(sleep_words(night))
    page.verdict(part, _KINDS.get(night.shift.verdict, ""))
    _add_night(page, night)
    _add_statistics(page, night)
    if agreement is not None:
        _add_agreement(page, night, agreement)
    _add_shift(page, night)
    _add_channels(page, night)
    _add_origin(page, night)
    return page


def _add_night(page: Page, night: StagedNight) -> None:
    page.heading("The night")
    of_pairs = ", and the share of pairs of channels that disagree" * (len(night.pairs) > 1)
    page.picture(
        night_png(night),
        picture_words(night),
        "From top to bottom: hypnogram; probability of each stage; spectrogram of "
        f"{printable(night.spectrogram.channel)}; confidence, which is the probability of the "
        f"stage given{of_pairs}.",
        scrolls=True,
    )


def _add_statistics(page: Page, night: StagedNight) -> None:
    page.heading("Sleep statistics")
    head = ["statistic", "value", "definition"]
    page.table("Sleep statistics", head, statistics_rows(night), unseen=True, words={2})
    if not night.statistics.lights.startswith("given"):
        page.text(
            "Lights off and on were not both given: time in bed, sleep efficiency and every "
            "latency from lights off say little about the sleeper.",
            "note",
        )


def _add_agreement(page: Page, night: StagedNight, found: Agreement) -> None:
    page.heading("Agreement with a scoring")
    rows = [
        ["Cohen's kappa", _share(found.kappa, 1), "agreement beyond chance; 1 is perfect"],
        ["accuracy", _share(found.accuracy), "share of the epochs that agree"],
        ["balanced accuracy", _share(found.balanced_accuracy), "mean of the stages' own shares"],
        ["macro F1", _share(found.macro_f1), "mean over stages"],
    ]
    caption = f"{found.n_compared:,} epochs compared; {found.n_left_out:,} are unscored by one side"
    page.table(caption, ["measure", "value", "definition"], rows, words={2})
    entries = [
        [
            (f"{n:,}", f"{n:,} epochs scored {true}, staged {staged}")
            for staged, n in zip(STAGES, row, strict=True)
        ]
        for true, row in zip(STAGES, found.confusion.tolist(), strict=True)
    ]
    page.matrix("Epochs as scored (rows) and as staged (columns)", STAGES, entries)
    _add_disagreements(page, night, found)


def _add_disagreements(page: Page, night: StagedNight, found: Agreement) -> None:
    shown = found.disagreements[:_SHOWN_DISAGREEMENTS]
    if not shown:
        page.text("No epoch was scored otherwise.")
        return
    rows = [
        [
            time_words(night.start, each.onset_s),
            str(each.epoch),
            each.true,
            each.predicted,
            _share(each.confidence),
        ]
        for each in shown
    ]
    page.table(
        f"The {len(shown)} most confident of {len(found.disagreements):,} disagreements",
        ["time", "epoch, from 0", "scored", "staged", "confidence"],
        rows,
        sortable=True,
    )


def _add_shift(page: Page, night: StagedNight) -> None:
    page.heading("How far to trust it")
    shift = night.shift
    if len(night.pairs) > 1 and shift.channels:
        page.text(_shown_words(shift, night.pairs))
    if shift.distances:
        unit = night.model.get("unit")
        page.text(
            "Distances (Bures–Wasserstein) of the night's power spectra from the barycenter of the "
            "training nights: of the input, and inside the model at each PSDNorm layer. That of "
            f"the input is in {unit or 'units of the prepared signal'}; the others have no unit."
        )
        page.picture(
            as_png(draw_distances(shift.distances)),
            " ".join(map(_distance_words, shift.distances)),
            scrolls=True,
        )
        page.table(
            "Distances from the training nights",
            ["where", "this night", "their median", "99 % are below", "nearer nights", "reading"],
            [_distance_row(each) for each in shift.distances],
        )
    else:
        page.text("The model does not know its training nights: there are no distances to show.")
    if not shift.channels:
        return
    page.heading("Spectra and filter", 3)
    page.picture(
        as_png(draw_spectra(shift)),
        _spectra_words(shift),
        "Left: power spectra of the night as the model was shown it, and of the training nights. "
        "Right: the filter that would map one onto the other; 0 dB changes nothing.",
        scrolls=True,
    )


def _shown_words(shift: ShiftReport, pairs: tuple[tuple[str, ...], ...]) -> str:
    """Say of which pair the distances and spectra are."""
    shown = " + ".join(map(printable, shift.channels))
    which = "the first" if shift.channels == pairs[0] else "the one that is farthest out of range"
    return f"Each of the {len(pairs)} pairs that vote was measured. Shown is {shown}, {which}."


def _distance_row(distance: Distance) -> list[str]:
    return [
        printable(distance.where),
        *map(_three_digits, (distance.value, distance.typical, distance.limit)),
        _share(distance.rank, digits=0),
        _reading(distance),
    ]


def _reading(distance: Distance) -> str:
    return "within" if distance.value <= distance.limit else "beyond"


def _three_digits(value: float) -> str:
    """Return a distance; a flat channel has none, or is infinitely far."""
    return UNKNOWN if np.isnan(value) else f"{value:.3g}".replace("inf", "∞")


def _distance_words(distance: Distance) -> str:
    return (
        f"{printable(distance.where)}: {_three_digits(distance.value)}, {_reading(distance)} the "
        f"{_three_digits(distance.limit)} that 99 % of the training nights stay below; their "
        f"median is {_three_digits(distance.typical)}."
    )


def _spectra_words(shift: ShiftReport) -> str:
    """Say at which frequency the filter of each channel does most."""
    parts = ["Spectra of the night and the filter towards those of the training nights."]
    for channel, gains_db in dict(zip(shift.channels, shift.filter_db, strict=True)).items():
        known = np.isfinite(gains_db)
        if not known.any():
            parts.append(f"{printable(channel)}: the filter is not known.")
            continue
        most = np.flatnonzero(known)[np.abs(gains_db[known]).argmax()]
        parts.append(
            f"{printable(channel)}: the filter does most at {shift.frequencies_hz[most]:g} Hz, "
            f"{gains_db[most]:+.1f} dB."
        )
    return " ".join(parts)


def _add_channels(page: Page, night: StagedNight) -> None:
    page.heading("Channels")
    staged = night.hypnogram != UNSCORED
    rows = []
    for pair, given in zip(night.pairs, night.pair_probabilities, strict=True):
        votes = given[staged & ~np.isnan(given).any(axis=1)]
        stages = night.hypnogram[staged & ~np.isnan(given).any(axis=1)]
        name = " + ".join(map(printable, pair))
        rows.append(
            [
                name,
                _mean_share(votes.argmax(axis=1) != stages),
                _mean_share(votes.max(axis=1)),
                f"{len(votes):,}",
            ]
        )
    if not rows:
        page.text("No channel could be staged.")
    several = " vote; what is shown above is the mean of what they give" * (len(rows) > 1)
    if rows:
        page.table(
            f"Channels that were shown to the model together{several}",
            ["channels", "disagree with the vote", "mean confidence", "epochs staged"],
            rows,
            sortable=len(rows) > 1,
        )
    if night.notes:
        page.heading("Notes", 3).items(map(printable, night.notes))


def _add_origin(page: Page, night: StagedNight) -> None:
    page.heading("How it was made")
    rows = [
        [name, printable(value if isinstance(value, str) else json.dumps(value, default=str))]
        for name, value in night.model.items()
    ]
    if rows:
        page.table("Model", ["of the model", "is"], rows, words={1})
    versions = f"psdnorm {psdnorm.__version__}, torch {torch.__version__}"
    page.text(f"Versions: {versions}, Python {platform.python_version()}.", "note")


def _mean_share(values: NDArray[Any]) -> str:
    return _share(values.mean()) if len(values) else UNKNOWN


def _share(value: float, scale: float = 100, digits: int = 1) -> str:
    """Return a share in percent; with a scale of 1, a number of two decimals."""
    if np.isnan(value):
        return UNKNOWN
    return f"{value:.2f}" if scale == 1 else f"{scale * value:.{digits}f} %"
