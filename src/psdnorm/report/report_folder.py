"""The folder of a report: it appears whole, and takes the place of nothing but a report."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from psdnorm.errors import ArgumentError, StoreError
from psdnorm.runtime import read_json, write_json

PAGE, RECORD, TABLES, FIGURES = "index.html", "report.json", "tables", "figures"
_FORMAT = 1


def check_place(path: Path) -> None:
    """Refuse a place for a report where something else is.

    Parameters
    ----------
    path : Path
        Nothing, an empty folder, or a folder with a report and nothing besides.
    """
    if path.exists() and not path.is_dir():
        raise ArgumentError(f"{path} is not a folder, expected one for the report")
    if not path.exists() or not any(path.iterdir()):
        return
    if not (path / RECORD).exists():
        raise ArgumentError(
            f"{path} holds something else than a report, expected an empty folder or an earlier "
            "report"
        )
    record = read_json(path / RECORD)
    if not isinstance(record, dict) or not isinstance(record.get("files"), list):
        raise ArgumentError(f"{path / RECORD} is not that of a report")
    others = sorted({*_files(path)} - {*record["files"]})
    if others:
        raise ArgumentError(
            f"{path} holds {others[0]}, which no report wrote: move it, or give another folder"
        )


@contextlib.contextmanager
def new_folder(path: Path, record: dict[str, Any]) -> Iterator[Path]:
    """Open a folder that takes the place of ``path`` when the block ends without an error.

    Parameters
    ----------
    path : Path
        As :func:`check_place` allows it.
    record : dict
        What ``report.json`` says, beside the files; looked at when the block ends.

    Yields
    ------
    Path
        An empty folder beside ``path``.
    """
    check_place(path)
    path = path.resolve()  # a link to a folder stays one
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        partial.mkdir(parents=True)
        try:
            yield partial
            files = sorted([*_files(partial), RECORD])
            write_json(partial / RECORD, {"format": _FORMAT, **record, "files": files})
            _put(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error


def _put(partial: Path, path: Path) -> None:
    """Let a folder take the place of another one, or of nothing."""
    check_place(path)  # what has come into it meanwhile is not to be lost
    old = path.with_name(f"{partial.name}.old")
    if path.exists():
        os.replace(path, old)
    try:
        os.replace(partial, path)
    except OSError:
        if old.exists():
            os.replace(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _files(folder: Path) -> list[str]:
    return [p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()]
