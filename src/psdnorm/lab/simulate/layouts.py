"""Where a night's files lie, and what is in them: as the cohort is downloaded."""

from pathlib import Path

from psdnorm.cohorts.ten_cohorts import COHORTS
from psdnorm.lab.simulate.edf_writing import Trace, edf_bytes
from psdnorm.lab.simulate.electrode_noise import electrodes_of, potentials
from psdnorm.lab.simulate.hypnograms import EPOCH_S
from psdnorm.lab.simulate.other_channels import OTHERS, record
from psdnorm.lab.simulate.plan import PlannedNight
from psdnorm.lab.simulate.profiles import profile_of
from psdnorm.lab.simulate.simulated_night import SimulatedNight

# of Sleep-EDF's names: the recorder's letter, then the scorer's
_RECORDERS = {"PHYS": "EFG", "phys-st": "J"}
_SCORERS = "CHPAJVWMY"


def signal_path(night: PlannedNight) -> Path:
    """Return where its EDF lies below the root of the cohort's download."""
    return _filled(COHORTS[night.cohort].signals[_spelling(night)], night)


def scoring_paths(night: PlannedNight) -> dict[Path, str]:
    """Return where its scorings lie, each with the format that `write_stages` knows.

    One subject in four of the NSRR has only the XML of Profusion, the others have both.
    """
    templates = COHORTS[night.cohort].scorings
    nsrr = [each for each in templates if each.endswith(".xml")]
    if not nsrr:
        return {_filled(templates[0], night): "edf"}
    first = 2 * _spelling(night)
    paths = {
        _filled(nsrr[first], night): "nsrr",
        _filled(nsrr[first + 1], night): "profusion",
    }
    if night.index % 4 == 2:
        del paths[_filled(nsrr[first], night)]
    return paths


def traces_of(night: PlannedNight, made: SimulatedNight) -> list[Trace]:
    """Return the channels of its EDF."""
    sfreq = int(made.sfreq)
    electrodes = electrodes_of(night.cohort, night.index)
    mixed = potentials(made.signal, electrodes, sfreq, night.stream("electrodes"))
    traces = [Trace(label, values, sfreq, made.unit) for label, values in mixed.items()]
    for other in OTHERS[night.cohort]:
        values = record(other, made, night.stream(other.label))
        traces.append(Trace(other.label, values, other.sfreq, other.unit))
    return traces


def labels_of(night: PlannedNight) -> tuple[str, ...]:
    """Return the labels of its channels, in the order of `traces_of`."""
    return (
        *electrodes_of(night.cohort, night.index),
        *(other.label for other in OTHERS[night.cohort]),
    )


def size_of(night: PlannedNight) -> int:
    """Return the bytes of its EDF."""
    own = int(profile_of(night.cohort).sfreq)
    rates = [own for _ in electrodes_of(night.cohort, night.index)]
    rates += [other.sfreq for other in OTHERS[night.cohort]]
    return edf_bytes(rates, round(night.n_epochs * EPOCH_S))


def _spelling(night: PlannedNight) -> int:
    # CHAT's names of whoever was not randomized begin with baseline all the same
    return int(night.visit == "nonrandomized")


def _filled(template: str, night: PlannedNight) -> Path:
    name = template.format(subject=night.subject, visit=night.visit)
    recorders = _RECORDERS.get(night.cohort, " ")
    for letters in (recorders, _SCORERS):
        name = name.replace("?", letters[night.index % len(letters)], 1)
    return Path(name)
