"""The command ``psdnorm``, and ``python -m psdnorm`` where the package is not installed."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still loading is answered as it is later."""
    try:
        from psdnorm.cli import main as run
    except KeyboardInterrupt:
        print("psdnorm: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
