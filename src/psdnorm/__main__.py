"""``python -m psdnorm``: the command line, where the package is not installed."""

from psdnorm.cli import main

if __name__ == "__main__":
    main()
