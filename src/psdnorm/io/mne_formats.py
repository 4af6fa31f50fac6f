"""Formats read through MNE, besides EDF and BDF: BrainVision, EEGLAB, FIF, GDF and more."""

import warnings
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import MissingExtraError, RecordingError
from psdnorm.io.channels import Channel, Header, Weights, microvolts

_VOLT = 107  # FIFF's unit code
# EEG formats: MNE's errors on these are worth showing; any other unreadable file is no recording
_SUFFIXES = (
    *(".vhdr", ".ahdr", ".fif", ".fif.gz", ".set", ".gdf", ".cnt", ".mff", ".mefd", ".lay"),
    *(".nedf", ".ns3", ".cdt", ".data"),
)
# MNE's annotations where a recording was cut or paused
_CUTS = ("bad boundary", "edge boundary", "bad_acq_skip", "boundary")


def read_signals(
    raw: Any, header: Header, found: Sequence[Weights], path: str | Path
) -> NDArray[np.float32]:
    """Read derivations, (C, T) in µV, from an opened MNE Raw."""
    if header.discontinuous:
        raise RecordingError(
            f"{path} is discontinuous, expected a continuous recording or EDF+D, whose gaps are "
            "filled"
        )
    used = sorted({index for weights in found for index in weights})
    scales = {index: microvolts(header.channels[index], path) for index in used}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            volts = dict(zip(used, raw.get_data(picks=used, verbose="ERROR"), strict=True))
    except Exception as error:
        raise _unreadable(path, error) from error
    rows = [sum(weight * scales[i] * volts[i] for i, weight in each.items()) for each in found]
    return np.stack(rows).astype(np.float32)


def open_raw(path: str | Path) -> Any:
    """Open a file with MNE, as an ``mne.io.BaseRaw``."""
    if not Path(path).exists():
        raise RecordingError(f"{path} cannot be read: No such file or directory")
    try:
        import mne  # slow (a second), so only where it is needed
    except ImportError as error:
        raise MissingExtraError(
            f'{path} is read through MNE: pip install "psdnorm[recordings]"'
        ) from error
    try:
        # MNE's warnings about odd but readable files are not repeated
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return mne.io.read_raw(path, preload=False, verbose="ERROR")
    except Exception as error:  # each of its readers fails in its own way
        if str(path).lower().endswith(_SUFFIXES):
            raise _unreadable(path, error) from error
        suffix = Path(path).suffix
        found = f"the suffix {suffix!r}" if suffix else "no suffix"
        raise RecordingError(
            f"{path} is not a recording of a known type: found {found}, expected .edf, .bdf, "
            ".rec, .vhdr, .fif, .fif.gz, .set, .gdf or another that MNE reads"
        ) from error


def header_of(raw: Any) -> Header:
    """Return the header of a recording opened by MNE."""
    nothing = (float("nan"), float("nan"))
    channels = tuple(
        Channel(each["ch_name"], raw.info["sfreq"], "V" if each["unit"] == _VOLT else "?", nothing)
        for each in raw.info["chs"]
    )
    start = raw.info["meas_date"]
    # BrainVision marks a new segment before each piece of a recording, including the first
    notes = [(note["description"].lower(), note["onset"]) for note in raw.annotations]
    cut = any(
        text.startswith(_CUTS) or (text.startswith("new segment") and onset_s > raw.first_time)
        for text, onset_s in notes
    )
    if start is not None:  # a cropped recording begins after its measurement date
        start = start.replace(tzinfo=None) + timedelta(seconds=float(raw.first_time))
    return Header(channels, start, raw.n_times / raw.info["sfreq"], cut)


def _unreadable(path: str | Path, error: Exception) -> RecordingError:
    # some of MNE's readers raise without a message on files of another kind
    reason = " ".join(str(error).split()) or "it is not a recording of the kind its name says"
    return RecordingError(f"{path} cannot be read through MNE: {reason:.200}")
