"""The command line: parses arguments, calls the package, prints.

Exit codes: 0, all went well; 1, it was done, but not for every file or run, and those are listed;
2, it could not be done, and one sentence says why; 130, interrupted.
"""

import pkgutil
import sys
from importlib import import_module
from importlib.util import find_spec

# the command is installed even without its extra, and must then be able to say so
_INSTALLED = find_spec("rich") is not None and find_spec("typer") is not None

if _INSTALLED:
    from psdnorm.cli._shared import app

    # each module adds its command; libraries that load slowly are imported when a command runs
    for _module in pkgutil.iter_modules(__path__):
        if _module.name.startswith("cmd_"):
            import_module(f"{__name__}.{_module.name}")


def main() -> None:
    """Run the command that the process was started with, and exit with its code."""
    if not _INSTALLED:
        print('psdnorm: the command line needs pip install "psdnorm[cli]"', file=sys.stderr)
        raise SystemExit(2)
    app(prog_name="psdnorm")


__all__ = ["app", "main"]
