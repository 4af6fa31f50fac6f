"""The ``psdnorm`` command; ``python -m psdnorm`` also works without installing the package."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C during its imports is handled as it is later."""
    try:
        from psdnorm.cli import main as run
    except KeyboardInterrupt:
        print("psdnorm: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
