"""The command line: parses, calls a room, prints.

Exit codes: 0, all went well; 1, it was done, but not for every file or cell, and those are listed;
2, it could not be done, and one sentence says why; 130, interrupted.
"""

import sys
from importlib.util import find_spec

# the command is installed without its extra too, and must be able to say so
_INSTALLED = find_spec("rich") is not None and find_spec("typer") is not None

if _INSTALLED:
    # each module adds its command; libraries that take long to load are imported by those that run
    from psdnorm.cli import (
        cmd_compare,
        cmd_demo,
        cmd_dissect,
        cmd_inspect,
        cmd_lodo,
        cmd_prepare,
        cmd_presets,
        cmd_report,
        cmd_review,
        cmd_simulate,
        cmd_stage,
        cmd_status,
        cmd_study,
        cmd_train,
    )
    from psdnorm.cli._shared import app


def main() -> None:
    """Run the command that the process was started with, and leave with its exit code."""
    if not _INSTALLED:
        print('psdnorm: the command line needs pip install "psdnorm[cli]"', file=sys.stderr)
        raise SystemExit(2)
    app(prog_name="psdnorm")


__all__ = ["app", "main"]
