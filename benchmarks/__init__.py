"""Measurements that the documentation quotes; ``python -m benchmarks.norms``."""

import argparse
from pathlib import Path


def check_table(parser: argparse.ArgumentParser, path: str | Path) -> None:
    """End with an error where a table cannot be written."""
    if Path(path).is_dir():
        parser.error(f"--csv {path} is a folder, not a file")
    if not Path(path).absolute().parent.is_dir():
        parser.error(f"--csv {path} is in a folder that does not exist")
