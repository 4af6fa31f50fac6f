"""A signal and its scoring become one :class:`Recording`."""

from datetime import timedelta
from pathlib import Path

from psdnorm.constants import EPOCH_S, UNSCORED
from psdnorm.errors import RecordingError
from psdnorm.io.channels import Wanted
from psdnorm.io.edf import read_channels
from psdnorm.io.recording import (
    PausedRecording,
    Recording,
    epochs_in_gaps,
    whole_epochs,
)
from psdnorm.io.scoring import Bout, grid_s, place, read_bouts


def read_recording(
    path: str | Path, wanted: Wanted, scoring: str | Path | None = None
) -> Recording:
    """Read a night.

    Parameters
    ----------
    path : str or Path
        The signal: EDF, EDF+, BDF, or whatever else MNE reads.
    wanted : sequence of str, or mapping of str to str or sequence of str
        Channels, as in :func:`read_channels`.
    scoring : str or Path, optional
        The stages, as in :func:`read_stages`; without it every epoch is unscored. It may be
        ``path`` itself, an EDF+ that holds both.

    Returns
    -------
    Recording
        Where the scorer's 30 s epochs do not begin with the signal but, say, 7 s into it, these 7 s
        are cut off, and ``start`` is 7 s later: an epoch is what the scorer saw. An epoch with a
        gap in it is unscored; where there are gaps, it is a
        :class:`~psdnorm.prepare.preprocess.PausedRecording`.

    Raises
    ------
    RecordingError
        If either file is damaged or they do not belong together.
    """
    channels = read_channels(path, wanted)
    signal, start = channels.signal, channels.start
    cut_s, bouts = 0.0, list[Bout]()
    if scoring is not None:
        bouts = read_bouts(scoring, start)
        cut = round(grid_s(bouts) * channels.sfreq)
        cut_s = cut / channels.sfreq
        signal = signal[:, cut:]
        start = None if start is None else start + timedelta(seconds=cut_s)
    duration_s = signal.shape[1] / channels.sfreq
    if whole_epochs(duration_s) == 0:
        raise RecordingError(f"{path} lasts {duration_s:g} s, expected at least {EPOCH_S} s")
    moved = [bout._replace(onset_s=bout.onset_s - cut_s) for bout in bouts]
    stages = place(moved, duration_s, scoring or path)
    in_gap = epochs_in_gaps(channels.gaps_s, len(stages), cut_s)
    stages[in_gap] = UNSCORED
    if scoring is not None and (stages == UNSCORED).all():
        raise RecordingError(f"{scoring} scores no epoch of {path} that has no gap in it")
    if not in_gap.any():
        return Recording(signal, channels.names, channels.sfreq, stages, start, str(path))
    return PausedRecording(signal, channels.names, channels.sfreq, stages, start, str(path), in_gap)
