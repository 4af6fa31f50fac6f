"""Nights are made here, or several at once in processes of their own."""

from collections.abc import Callable, Iterator, Sequence

from psdnorm.errors import ArgumentError, RecordingError
from psdnorm.lab.simulate.plan import PlannedNight
from psdnorm.runtime.parallel import in_processes


def make_nights(
    make: Callable[[PlannedNight], PlannedNight], nights: Sequence[PlannedNight], jobs: int
) -> Iterator[PlannedNight]:
    """Yield each night when it is made; the first one that cannot be made ends it.

    Parameters
    ----------
    make : callable
        A function that other processes can import, or a partial of one.
    nights : sequence of PlannedNight
    jobs : int
        Processes at a time; 1 works in this one, in order.
    """
    if jobs < 1:
        raise ArgumentError(f"jobs is {jobs}, expected at least 1")
    if jobs == 1 or len(nights) < 2:
        yield from map(make, nights)
    else:
        yield from in_processes(make, nights, min(jobs, len(nights)), _lost)


def _lost(night: PlannedNight, reason: str) -> PlannedNight:
    raise RecordingError(f"a night of {night.cohort} {night.subject} was not made: {reason}")
