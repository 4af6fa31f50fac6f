"""A study run in pieces: until its cells are done, or its minutes are up."""

import _thread
import contextlib
import itertools
import signal
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from psdnorm.errors import ArgumentError
from psdnorm.experiments import (
    FAILURE,
    FINISHED,
    H200,
    Amounts,
    ExperimentFolder,
    Job,
    Outcome,
    Told,
    Unit,
    check_grid,
    run_units,
    units_of,
)
from psdnorm.lab.study.definition import Study
from psdnorm.lab.study.result_cache import Meter, note_nights
from psdnorm.store import Store
from psdnorm.training import Run

_DIED = "process died"


class MinutesAreUp(KeyboardInterrupt):
    """Raised where the minutes that were given are over; it takes the road of Ctrl-C."""


def runs_of(study: Study, work: Path) -> ExperimentFolder:
    """Return the folder of the cells of a study."""
    return ExperimentFolder(work / study.name)


def seconds_of(study: Study, amounts: Amounts) -> dict[Run, float]:
    """Estimate the seconds of every cell on one H200 that all of them share."""
    size, epochs = study.protocol.batch_size, study.expected_epochs
    return {
        cell: amounts.of(cell).in_batches(size).seconds(cell, H200[cell.model], epochs)
        for cell in study.cells
    }


def shares_of(
    units: Sequence[Unit], seconds: Mapping[Run, float], workers: int
) -> list[tuple[Run, ...]]:
    """Deal units out to workers in shares of about the same time."""
    if workers >= len(units):
        return [*units]
    total = sum(seconds[cell] for unit in units for cell in unit)
    shares: list[list[int]] = [[] for _ in range(workers)]
    passed = 0.0
    for number in _last_first(units):
        own = sum(seconds[cell] for cell in units[number])
        # by where its middle lies
        place = int(workers * (passed + own / 2) / total) if total else 0
        shares[min(place, workers - 1)].append(number)
        passed += own
    return [
        tuple(cell for number in sorted(share) for cell in units[number])
        for share in shares
        if share
    ]


def _last_first(units: Sequence[Unit]) -> list[int]:
    """Return the places of units, those of one norm from the last to the first."""
    order: list[int] = []
    for _, group in itertools.groupby(range(len(units)), lambda number: _norm(units[number][0])):
        order += reversed(list(group))
    return order


def _norm(cell: Run) -> tuple:
    return cell.model, cell.norm, cell.filter_size, cell.norm_depth


def run_study(
    study: Study,
    store: Store,
    runs: ExperimentFolder,
    meter: Meter,
    *,
    workers: int = 1,
    device: str = "auto",
    told: Told = lambda name, words: None,
) -> Iterator[Outcome]:
    """Run the cells of a study that are not finished; what was interrupted goes on."""
    _check_nights(store, runs)
    runs.check(store, study.protocol)
    amounts = Amounts(store, study.protocol)
    left = [unit for unit in units_of(study.cells) if not all(map(runs.is_done, unit))]
    waiting = [cell for unit in left for cell in unit if not runs.is_done(cell)]
    check_grid(store, waiting, study.protocol, runs, device=device, keep=study.keep)
    runs.extend(store, study.protocol, [amounts.entry(cell) for cell in study.cells])
    note_nights(runs, study.nights.to_json())
    job = Job(store, runs, study.protocol, device, "auto", study.keep)
    shares = shares_of(left, seconds_of(study, amounts), workers)
    run = partial(run_units, job=job, jobs=workers, told=told)
    heard: set[Run] = set()
    try:
        with contextlib.closing(_outcomes(left, shares, waiting, run)) as outcomes:
            for outcome in outcomes:
                heard.add(outcome.cell)
                meter.count(outcome)
                yield outcome
    finally:
        for cell in waiting:
            if cell not in heard and runs.is_done(cell):  # as all were being stopped
                meter.count(Outcome(cell, FINISHED))


def _outcomes(
    left: Sequence[Unit],
    shares: Sequence[tuple[Run, ...]],
    waiting: Collection[Run],
    run: Callable[[Sequence[Unit]], Iterator[Outcome]],
) -> Generator[Outcome]:
    """Run shares, then one by one the units of those whose process died."""
    lost: set[Run] = set()
    for outcome in run(shares):
        if outcome.status == FAILURE and _DIED in outcome.reason and len(shares) < len(left):
            lost.add(outcome.cell)
        elif outcome.cell in waiting:
            yield outcome
    # so that it is clear which one kills it
    for outcome in run([unit for unit in left if not lost.isdisjoint(unit)]):
        if outcome.cell in lost:
            yield outcome


def _check_nights(store: Store, runs: ExperimentFolder) -> None:
    """Refuse to go on with cells of other nights; another folder would get packed ones again."""
    difference = runs.other_nights(store) if runs.settings() else None
    if difference is not None:
        raise ArgumentError(
            f"{runs.path} has cells of {difference}, expected the same nights: to begin anew, take "
            "other folders for the work and its results"
        )


@contextlib.contextmanager
def sigterm_is_ctrl_c() -> Iterator[None]:
    """Take SIGTERM, by which schedulers end what runs too long, for Ctrl-C: nothing is lost."""
    if threading.current_thread() is not threading.main_thread():  # others never hear it
        yield
        return

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not disturb the end
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def check_minutes(minutes: float) -> None:
    """Refuse minutes in which nothing can be done, or that no clock here counts."""
    most = threading.TIMEOUT_MAX // 60
    if not 0 < minutes <= most:
        raise ArgumentError(
            f"minutes is {minutes}, expected a number above 0 and at most {most:,.0f}"
        )


@contextlib.contextmanager
def for_minutes(minutes: float | None) -> Iterator[None]:
    """End a block by :class:`MinutesAreUp` when the minutes are over, as Ctrl-C would."""
    if minutes is None:
        yield
        return
    check_minutes(minutes)
    over = threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def ring() -> None:
        over.set()
        if hasattr(signal, "pthread_kill"):
            # to the thread that waits: only there a signal ends the wait
            signal.pthread_kill(main, signal.SIGINT)
        else:  # on Windows
            _thread.interrupt_main()

    timer = threading.Timer(60 * minutes, ring)
    timer.daemon = True
    try:
        with _interruptible():
            timer.start()
            try:
                yield
            finally:
                timer.cancel()
                timer.join()  # it may ring this very moment: then that is heard here
    except KeyboardInterrupt:
        if over.is_set():
            raise MinutesAreUp from None
        raise


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGINT interrupt, though a shell that runs a script in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
