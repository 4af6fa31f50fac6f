"""Whatever MNE reads besides EDF and BDF: BrainVision, EEGLAB, FIF, GDF and more."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from psdnorm.errors import MissingExtraError, RecordingError
from psdnorm.io.channels import Channels, microvolts, one_rate, resolve
from psdnorm.io.edf_header import Channel, Header

_VOLT = 107  # FIFF's number for it
# of EEG: what MNE says of these is of use; whatever else it cannot read is no recording
_SUFFIXES = (
    *(".vhdr", ".ahdr", ".fif", ".fif.gz", ".set", ".gdf", ".cnt", ".mff", ".mefd", ".lay"),
    *(".nedf", ".ns3", ".cdt", ".data"),
)
# what MNE notes where a recording was cut or paused
_CUTS = ("bad boundary", "edge boundary", "bad_acq_skip", "boundary")


def read_header(path: str | Path) -> Header:
    """Read what a file says about its channels, as :func:`psdnorm.io.read_header` does."""
    return header_of(_open(path))


def read_channels(path: str | Path, names: Mapping[str, tuple[str, ...]]) -> Channels:
    """Read channels as :func:`psdnorm.io.read_channels` does.

    Parameters
    ----------
    path : str or Path
    names : mapping of str to tuple of str
        Each channel wanted and the expressions that may stand for it, in order.
    """
    return channels_of(_open(path), names, path)


def channels_of(raw: Any, names: Mapping[str, tuple[str, ...]], path: str | Path) -> Channels:
    """Read channels of what MNE has opened.

    Parameters
    ----------
    raw : mne.io.BaseRaw
    names : mapping of str to tuple of str
        As in :func:`read_channels`.
    path : str or Path
        What it is called in errors.
    """
    header = header_of(raw)
    if header.discontinuous:
        raise RecordingError(
            f"{path} is discontinuous, expected a continuous recording or EDF+D, whose gaps are "
            "filled"
        )
    found = [resolve(options, header.labels, path) for options in names.values()]
    used = sorted({index for _, weights in found for index in weights})
    scales = {index: microvolts(header.channels[index], path) for index in used}
    sfreq = one_rate({header.labels[index]: header.channels[index].sfreq for index in used}, path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            volts = dict(zip(used, raw.get_data(picks=used, verbose="ERROR"), strict=True))
    except Exception as error:
        raise _unreadable(path, error) from error
    signal = np.stack(
        [
            sum(weight * scales[i] * volts[i] for i, weight in weights.items())
            for _, weights in found
        ]
    ).astype(np.float32)
    expressions = tuple(expression for expression, _ in found)
    return Channels(signal, tuple(names), expressions, sfreq, header.start, (), str(path))


def _open(path: str | Path) -> Any:
    if not Path(path).exists():
        raise RecordingError(f"{path} cannot be read: No such file or directory")
    try:
        import mne  # takes a second: only for those who need it
    except ImportError as error:
        raise MissingExtraError(
            f'{path} is read through MNE: pip install "psdnorm[recordings]"'
        ) from error
    try:
        # what MNE finds odd but readable is not ours to repeat
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return mne.io.read_raw(path, preload=False, verbose="ERROR")
    except Exception as error:  # each of its readers fails in its own way
        if str(path).lower().endswith(_SUFFIXES):
            raise _unreadable(path, error) from error
        raise _unknown(path) from error


def header_of(raw: Any) -> Header:
    """Return what MNE says of the channels of what it has opened."""
    nothing = (float("nan"), float("nan"))
    channels = tuple(
        Channel(each["ch_name"], raw.info["sfreq"], "V" if each["unit"] == _VOLT else "?", nothing)
        for each in raw.info["chs"]
    )
    start = raw.info["meas_date"]
    # BrainVision begins each piece of a recording with a new segment, the first one too
    cut = any(
        note["description"].lower().startswith(_CUTS)
        or (
            note["description"].lower().startswith("new segment") and note["onset"] > raw.first_time
        )
        for note in raw.annotations
    )
    start = None if start is None else start.replace(tzinfo=None)
    return Header(channels, start, raw.n_times / raw.info["sfreq"], cut)


def _unreadable(path: str | Path, error: Exception) -> RecordingError:
    # some of MNE's readers give up without a word on what is none of theirs
    reason = " ".join(str(error).split()) or "it is no recording of the kind that its name says"
    return RecordingError(f"{path} cannot be read through MNE: {reason:.200}")


def _unknown(path: str | Path) -> RecordingError:
    suffix = Path(path).suffix
    found = f"the suffix {suffix!r}" if suffix else "no suffix"
    return RecordingError(
        f"{path} is no recording of a type that is known: found {found}, expected .edf, .bdf, "
        ".rec, .vhdr, .fif, .fif.gz, .set, .gdf or another that MNE reads"
    )
