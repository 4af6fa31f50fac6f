"""What is known of a night once it is staged."""

import importlib
import os
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.errors import MissingExtraError
from psdnorm.staging.result_files import edf_start, write_edf_annotations, write_tsv
from psdnorm.staging.shift import ShiftReport
from psdnorm.staging.sleep_statistics import SleepStatistics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from psdnorm.staging.sleep_statistics import Agreement


@dataclass(frozen=True, eq=False)
class Spectrogram:
    """How the power of one channel goes over the night.

    Attributes
    ----------
    channel : str
    frequencies_hz : ndarray, (F,)
    power_db : ndarray, (E, F), float32
        dB of µV²/Hz, the mean over each 30 s epoch.
    """

    channel: str
    frequencies_hz: NDArray[np.float64]
    power_db: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class StagedNight:
    """A night and its hypnogram.

    Nothing in it says who slept.

    Attributes
    ----------
    source : str
        The file's name, without its folder.
    start : datetime or None
        When the first sample was taken, where the file says so.
    hypnogram : ndarray of int8, (E,)
        W, N1, N2, N3, REM = 0…4; -1 where no channel could be staged.
    probabilities : ndarray of float32, (E, 5)
        Mean over all pairs of channels that voted; NaN where no channel could be staged.
    pairs : tuple of tuple of str
        The channels, P pairs as a rule, that were shown to the model together.
    pair_probabilities : ndarray of float32, (P, E, 5)
        What each of them gave; NaN where none of its channels was measured.
    statistics : SleepStatistics
    shift : ShiftReport
        How far to trust it.
    spectrogram : Spectrogram
        Of the first channel, for the eye.
    model : dict
        Name, architecture and checksum of the model.
    notes : tuple of str
        What a user should know of how it came about: channels fed twice, units, gaps, flags.
    notice : str or None
        What must stand on every output.
    """

    source: str
    start: datetime | None
    hypnogram: NDArray[np.int8]
    probabilities: NDArray[np.float32]
    pairs: tuple[tuple[str, ...], ...]
    pair_probabilities: NDArray[np.float32]
    statistics: SleepStatistics
    shift: ShiftReport
    spectrogram: Spectrogram
    model: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    notice: str | None = None

    @property
    def confidence(self) -> NDArray[np.float32]:
        """Probability of the stage given, (E,); NaN where there is none."""
        return self.probabilities.max(axis=1)

    @property
    def disagreement(self) -> NDArray[np.float32]:
        """Share of the pairs that vote whose own stage is another than the vote's, (E,).

        NaN where nobody votes.
        """
        votes = ~np.isnan(self.pair_probabilities).any(axis=2)  # (P, E)
        own = np.nan_to_num(self.pair_probabilities).argmax(axis=2)
        others = (votes & (own != self.hypnogram)).sum(axis=0)
        with np.errstate(invalid="ignore"):
            return (others / votes.sum(axis=0)).astype(np.float32)

    def plot(self) -> "Figure":
        """Draw it: hypnogram, hypnodensity, spectrogram, confidence."""
        from psdnorm.staging.hypnogram_figures import draw_night

        return draw_night(self)

    def to_tsv(self, path: str | os.PathLike[str]) -> None:
        """Write the hypnogram as BIDS events; see :func:`psdnorm.staging.write_tsv`."""
        write_tsv(Path(path), self.hypnogram, self.probabilities)

    def to_edf(self, path: str | os.PathLike[str]) -> None:
        """Write the hypnogram as EDF+ annotations, which MNE and EDFbrowser read."""
        start = edf_start(self.start)
        write_edf_annotations(Path(path), self.hypnogram, start, notice=self.notice)

    def to_yasa(self) -> Any:
        """Return a ``yasa.Hypnogram``; needs YASA."""
        try:
            yasa = importlib.import_module("yasa")
        except ImportError as error:
            raise MissingExtraError("to_yasa needs YASA: pip install yasa") from error
        names = ["WAKE", *STAGES[1:]]
        values = ["UNS" if stage == UNSCORED else names[stage] for stage in self.hypnogram]
        start = None if self.start is None else self.start.isoformat(sep=" ", timespec="seconds")
        return yasa.Hypnogram(values, n_stages=5, freq=f"{EPOCH_S}s", start=start)

    def write(
        self,
        folder: str | os.PathLike[str],
        name: str | None = None,
        *,
        agreement: "Agreement | None" = None,
    ) -> list[Path]:
        """Write all that is known of the night into a folder.

        Parameters
        ----------
        folder : path
            Made if it does not exist.
        name : str, optional
            What the files are called; the recording's own name without its suffix.
        agreement : Agreement, optional
            With a human scoring.

        Returns
        -------
        list of Path
            Of the files, the summary first; see :func:`psdnorm.staging.write_night`.
        """
        from psdnorm.staging.writing import write_night

        return write_night(folder, self, name, agreement=agreement)
