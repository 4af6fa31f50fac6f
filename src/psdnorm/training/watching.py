"""What a person sees of a training while it runs."""

import sys
from collections.abc import Mapping
from typing import Any, Protocol, TextIO


class Watcher(Protocol):
    """Is told how a training goes; no call may take long."""

    def begin_epoch(self, epoch: int, first_batch: int, n_batches: int) -> None:
        """Hear that an epoch begins, or goes on from a batch."""

    def step(self, batch: int, loss: float) -> None:
        """Hear how many batches of the epoch are done, and the latest loss."""

    def end_epoch(self, row: Mapping[str, float | int]) -> None:
        """Hear that an epoch ended with this row of the history."""


class Silent:
    """Shows nothing."""

    def begin_epoch(self, epoch: int, first_batch: int, n_batches: int) -> None:
        """Show nothing."""

    def step(self, batch: int, loss: float) -> None:
        """Show nothing."""

    def end_epoch(self, row: Mapping[str, float | int]) -> None:
        """Show nothing."""


class Bars:
    """A bar per epoch with losses and balanced accuracy; a line per epoch where no one looks.

    Parameters
    ----------
    file : TextIO, optional
        Standard error, if it is not given.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._bar: Any = None

    def begin_epoch(self, epoch: int, first_batch: int, n_batches: int) -> None:
        """Start a bar."""
        from tqdm import tqdm  # type: ignore[import-untyped]

        file = self._file or sys.stderr
        self._bar = tqdm(
            total=n_batches,
            initial=first_batch,
            desc=f"epoch {epoch + 1}",
            unit="batch",
            file=file,
            disable=not file.isatty(),
        )

    def step(self, batch: int, loss: float) -> None:
        """Move the bar."""
        self._bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
        self._bar.update(batch - self._bar.n)

    def end_epoch(self, row: Mapping[str, float | int]) -> None:
        """Close the bar with what the epoch came to."""
        figures = {
            "loss": f"{row['train_loss']:.4f}",
            "validation": f"{row['validation_loss']:.4f}",
            "balanced accuracy": f"{row['validation_balanced_accuracy']:.3f}",
        }
        if self._bar.disable:
            words = ", ".join(f"{name} {value}" for name, value in figures.items())
            print(
                f"epoch {int(row['epoch']) + 1}: {words}", file=self._file or sys.stderr, flush=True
            )
        self._bar.set_postfix(figures)
        self._bar.update(self._bar.total - self._bar.n)
        self._bar.close()
