"""Age, sex and family of subjects from a cohort's tables; all are optional."""

import importlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple, TypeVar

from psdnorm.cohorts.file_layout import Problem, children, folders_named
from psdnorm.cohorts.known_cohorts import Cohort, People
from psdnorm.io import fold, number_or_nan, read_rows

_SEXES = {"m": "M", "male": "M", "man": "M", "f": "F", "female": "F", "woman": "F"}
_OLDEST = 120
Table = list[list[str]]
_Value = TypeVar("_Value")


class Person(NamedTuple):
    """What a table says about a subject."""

    age: float | None = None
    sex: str | None = None
    family: str | None = None


# by number and visit: a table with a visit in its name describes that visit, any other all visits,
# as visit ""; the first table with a value is used
Census = dict[tuple[str, str], Person]


def person_in(census: Census, subject: str, visit: str, visits: Iterable[str]) -> Person:
    number = _number(subject)
    known = _either(census.get((number, visit), Person()), census.get((number, ""), Person()))
    for other in visits:
        # age depends on the visit, sex and family do not
        known = _either(known, census.get((number, other), Person())._replace(age=None))
    return known


def read_people(cohort: Cohort, root: Path) -> tuple[Census, list[str]]:
    """Read a cohort's tables; also return notes on skipped tables and the reasons."""
    census, notes, silent = Census(), list[str](), list[Path]()
    if cohort.people is None:
        return census, notes
    closed: list[Problem] = []
    tables = _tables(cohort.people.files, root, closed)
    notes += [f"{problem}, so ages and sexes in it are left out" for problem in closed]
    for path in tables:
        # the longest match, as visit-18 also contains visit-1
        inside = [visit for visit in cohort.visits if len(visit) > 1 and visit in fold(path.name)]
        visit = max(inside, key=len, default="")
        try:
            table = (
                _read_xls(path) if path.suffix.lower() == ".xls" else read_rows(path.read_bytes())
            )
        except ImportError:
            notes.append(f"{path} was not read, so its ages and sexes are left out: it needs xlrd")
            continue
        except Exception as error:  # xlrd fails in many ways; a table must not cost a night
            notes.append(f"{path} was not read: {' '.join(str(error).split()):.200}")
            continue
        said = _people_in(table, cohort.people, visit)
        if said is None:
            silent.append(path)
            continue
        for number, person in said.items():
            census[number, visit] = _either(census.get((number, visit), Person()), person)
    # many tables of a download are unrelated: one with the columns is enough
    if silent and not census:
        people = cohort.people
        names = ", ".join(path.name for path in silent)
        facts = [*people.age, *people.age_at.values(), "nsrr_sex", *people.sex, *people.family]
        notes.append(
            f"{silent[0].parent} has no table of {' or '.join(people.subject)} with age, sex or "
            f"family ({', '.join(facts)}), so they are left out, found {names:.200}"
        )
    return census, notes


def age_of(text: str) -> float | None:
    """Return an age in years, or None: ``.``, ``n/a``, ``-9``."""
    age = number_or_nan(text)
    return age if 0 <= age <= _OLDEST else None


def sex_of(text: str, codes: Mapping[str, str] | None = None) -> str | None:
    """Return F or M for a word or a code, else None."""
    return _SEXES.get(fold(text)) or (codes or {}).get(_number(text))


def _tables(patterns: Iterable[str], root: Path, closed: list[Problem]) -> list[Path]:
    found = []
    for pattern in patterns:
        *folders, name = pattern.split("/")
        for folder in folders_named(root, folders, closed):
            found += [p for p in children(folder, closed) if fnmatchcase(fold(p.name), fold(name))]
    return list(dict.fromkeys(found))


def _read_xls(path: Path) -> Table:
    # imported by name, as it is used nowhere else and has no type hints
    sheet = importlib.import_module("xlrd").open_workbook(str(path)).sheet_by_index(0)
    rows = [sheet.row_values(row) for row in range(sheet.nrows)]
    return [[f"{c:g}" if isinstance(c, float) else str(c) for c in row] for row in rows]


def _people_in(table: Table, people: People, visit: str) -> dict[str, Person] | None:
    """Return each subject's values in one table, by number; None if columns are missing."""
    subjects = {fold(name) for name in people.subject}
    # Telemetry's table has a row above the column names
    top = next((n for n, row in enumerate(table[:3]) if subjects & {fold(c) for c in row}), None)
    if top is None:
        return None
    ages = [people.age_at[visit]] if visit in people.age_at else []
    ages += people.age
    sexes: dict[str, Mapping[str, str]] = {"nsrr_sex": {}}
    sexes |= {fold(name): codes for name, codes in people.sex.items()}
    # only the needed columns: SHHS has 1200
    wanted = {*people.subject, *ages, *sexes, *people.family}
    places = [(n, name) for n, cell in enumerate(table[top]) if (name := fold(cell)) in wanted]
    if subjects.issuperset(name for _, name in places):
        return None
    said: dict[str, Person] = {}
    for row in table[top + 1 :]:
        cells = {name: row[n] for n, name in places if n < len(row)}
        subject = next((cells[name] for name in people.subject if cells.get(name)), "")
        person = Person(
            _first(age_of(cells.get(name, "")) for name in ages),
            _first(sex_of(cells.get(name, ""), codes) for name, codes in sexes.items()),
            _first(_number(cells.get(name, "")) or None for name in people.family),
        )
        number = _number(subject)
        # conflicting values are dropped
        said[number] = _agreed(said[number], person) if number in said else person
    said.pop("", None)
    return said


def _first(values: Iterable[_Value | None]) -> _Value | None:
    return next((value for value in values if value is not None), None)


def _either(first: Person, second: Person) -> Person:
    return Person._make(b if a is None else a for a, b in zip(first, second, strict=True))


def _agreed(first: Person, second: Person) -> Person:
    return Person._make(a if a == b else None for a, b in zip(first, second, strict=True))


def _number(text: str) -> str:
    """Normalize a number for comparison: 07853 and 7853.0 are 7853; "" if there is none."""
    name = fold(text).removesuffix(".0")
    if name in ("", ".", "n/a", "na", "nan"):
        return ""
    return name.lstrip("0") or "0"
