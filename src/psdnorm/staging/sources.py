"""A night as it comes: a file, or what MNE has opened."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from psdnorm.errors import ArgumentError
from psdnorm.io import mne_formats as other_formats
from psdnorm.io import read_channels, read_header
from psdnorm.io.channels import Channels
from psdnorm.io.edf_header import Header


@dataclass(frozen=True, eq=False)
class Source:
    """What a night is read from.

    Attributes
    ----------
    name : str
        Of the file, without its folder.
    called : str
        What errors call it.
    header : Header
    raw : mne.io.BaseRaw or None
        None for a file.
    """

    name: str
    called: str
    header: Header
    raw: Any = None

    def read(self, wanted: Mapping[str, str]) -> Channels:
        """Read channels, each by its expression."""
        if self.raw is None:
            return read_channels(self.called, wanted)
        options = {name: (expression,) for name, expression in wanted.items()}
        found = other_formats.channels_of(self.raw, options, self.called)
        return replace(found, start=self.header.start)


def open_source(raw_or_path: Any) -> Source:
    """Open a file or an MNE Raw, and read what it says of its channels.

    Parameters
    ----------
    raw_or_path : str, path or mne.io.BaseRaw
    """
    if isinstance(raw_or_path, str | os.PathLike):
        path = Path(raw_or_path)
        return Source(path.name, str(path), read_header(path))
    if not (hasattr(raw_or_path, "info") and hasattr(raw_or_path, "get_data")):
        raise ArgumentError(
            f"raw_or_path is a {type(raw_or_path).__name__}, expected a path or an MNE Raw"
        )
    header = other_formats.header_of(raw_or_path)
    if header.start is not None:  # it may have been cropped
        begun = header.start + timedelta(seconds=float(raw_or_path.first_time))
        header = replace(header, start=begun)
    files = [file for file in getattr(raw_or_path, "filenames", ()) or () if file]
    name = Path(files[0]).name if files else "raw"
    return Source(name, name, header, raw_or_path)
