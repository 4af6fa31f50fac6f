"""Which channels of a recording are read, and what their numbers are in."""

from collections.abc import Sequence
from typing import NamedTuple

from psdnorm.errors import RecordingError
from psdnorm.io.channels import microvolts, one_rate
from psdnorm.io.derivation import Wanted, candidates, fold, resolve
from psdnorm.prepare.electrodes import electrodes_of
from psdnorm.prepare.recipe import NARROWEST_HZ, Recipe
from psdnorm.staging.montage import Montage, find_montage
from psdnorm.staging.sources import Source
from psdnorm.staging.units import factor_of


class PlannedChannel(NamedTuple):
    """A channel that will be read.

    Attributes
    ----------
    name, expression : str
    sfreq : float
        In Hz.
    factor : float
        From what the file calls µV to µV, where the user gave another unit.
    electrodes : tuple of str
        Labels of what is held against a reference; empty where the file holds the channel itself.
    """

    name: str
    expression: str
    sfreq: float
    factor: float
    electrodes: tuple[str, ...]


def plan_channels(
    source: Source, wanted: Wanted | None, recipe: Recipe, unit: str | None
) -> tuple[list[PlannedChannel], list[str]]:
    """Decide which channels of a recording are read.

    Parameters
    ----------
    source : Source
    wanted : sequence or mapping, or None
        Channels, as :func:`psdnorm.io.read_channels` takes them, or as outputs call them;
        without, the EEG derivations that the labels tell of.
    recipe : Recipe
        Whose filter needs some sampling rate.
    unit : {"V", "mV", "uV", "nV"} or None
        What the numbers in the file are in, whatever it says.

    Returns
    -------
    channels : list of PlannedChannel
        One at least.
    notes : list of str

    Raises
    ------
    RecordingError
        If there is none: the error lists the channels that were found.
    """
    found: Montage = find_montage(source.header.labels)
    if wanted is not None:
        given = _by_label_or_name(wanted, found)
        return [
            _planned(source, name, options, recipe, unit) for name, options in given.items()
        ], []
    planned, notes = [], list(found.notes)
    left_out: list[RecordingError] = []
    for derivation in found.derivations:
        try:
            options = (derivation.expression,)
            planned.append(_planned(source, derivation.name, options, recipe, unit))
        except RecordingError as error:  # another may do
            left_out.append(error)
            notes.append(f"{derivation.name} is left out: {error}")
    if left_out and not planned:
        raise left_out[0]
    if not source.header.labels:
        raise RecordingError(f"{source.called} has no channel, as a scoring has none, expected EEG")
    if not planned:
        labels = ", ".join(label.strip() for label in source.header.labels)
        why = f": {notes[-1]}" if notes else ""
        raise RecordingError(
            f"{source.called} has no EEG channel that is known by its name, found {labels}; say "
            f"by --channels which to use, as in 'C3-M2,C4-M1'{why}"
        )
    return planned, notes


def _by_label_or_name(wanted: Wanted, found: Montage) -> dict[str, tuple[str, ...]]:
    """Return candidates; what outputs call ``Fp1`` may be labelled ``EEG Fp1-LER``."""
    called = {fold(each.name): each.expression for each in found.derivations}
    return {
        name: (*options, *(called[fold(each)] for each in options if fold(each) in called))
        for name, options in candidates(wanted).items()
    }


def _planned(
    source: Source, name: str, options: Sequence[str], recipe: Recipe, unit: str | None
) -> PlannedChannel:
    header = source.header
    expression, weights = resolve(options, header.labels, source.called)
    used = [header.channels[index] for index in weights]
    sfreq = one_rate({each.label: each.sfreq for each in used}, source.called)
    least_hz = 2 * (recipe.lowpass_hz + NARROWEST_HZ)
    if sfreq < least_hz:
        raise RecordingError(
            f"{source.called} has {expression!r} at {sfreq:g} Hz, expected at least {least_hz:g} Hz"
        )
    declared = {microvolts(each, source.called) for each in used}
    electrodes = electrodes_of(weights, header.labels)
    if unit is None:
        return PlannedChannel(name, expression, sfreq, 1.0, electrodes)
    if len(declared) > 1:
        raise RecordingError(
            f"{source.called} has the channels of {expression!r} in several units, and the unit "
            f"{unit} was given for all"
        )
    return PlannedChannel(name, expression, sfreq, factor_of(unit) / declared.pop(), electrodes)
