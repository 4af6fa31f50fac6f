"""The tables of age, sex and family that come with a cohort."""

import csv
import io
from pathlib import Path

from psdnorm.cohorts.entry import People
from psdnorm.cohorts.people import Person
from psdnorm.cohorts.ten_cohorts import COHORTS
from psdnorm.lab.simulate.plan import PlannedNight


def people_tables(nights: list[PlannedNight]) -> dict[Path, str]:
    """Return the tables of one cohort.

    Parameters
    ----------
    nights : list of PlannedNight
        All that the cohort has.

    Returns
    -------
    dict of Path to str
        Text of each table by its place below the root of the download: one for each visit in the
        NSRR's cohorts, one for all in Sleep-EDF, none in MASS.
    """
    cohort = COHORTS[nights[0].cohort]
    if cohort.people is None:
        return {}
    rows: dict[Path, list[dict[str, str]]] = {}
    for night in nights:
        path = _path(cohort.people, cohort.signals[0], night.visit)
        rows.setdefault(path, []).append(_row(cohort.people, night))
    return {path: _text(own) for path, own in rows.items()}


def _path(people: People, signal: str, visit: str) -> Path:
    plain = [name for name in people.files if name.endswith(".csv") and ".." not in name]
    # sleep-edf's has a name, the NSRR's are named like the signals
    if "*" not in plain[0]:
        return Path(plain[0])
    stem = signal.rpartition("/")[2].replace("{visit}", visit)
    return Path(plain[0].replace("*", stem.replace("{subject}.edf", "dataset")))


def _row(people: People, night: PlannedNight) -> dict[str, str]:
    person = night.person()
    column, said = _sex(people, person)
    row = {
        people.subject[0]: night.subject,
        people.age_at.get(night.visit, people.age[0]): f"{person.age:.1f}",
        column: said,
    }
    if person.family is not None:
        row[people.family[0]] = person.family
    return row


def _sex(people: People, person: Person) -> tuple[str, str]:
    """Return a column, and what it says: the study's own if it has a word for either sex."""
    for column, codes in people.sex.items():
        words = {sex: code for code, sex in codes.items()} or {"F": "F", "M": "M"}
        if words.keys() == {"F", "M"}:
            return column, words[str(person.sex)]
    return "nsrr_sex", {"F": "female", "M": "male"}[str(person.sex)]


def _text(rows: list[dict[str, str]]) -> str:
    text = io.StringIO()
    # a subject's nights are one row each in Sleep-EDF's table, and say the same
    table = csv.DictWriter(text, rows[0], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()
