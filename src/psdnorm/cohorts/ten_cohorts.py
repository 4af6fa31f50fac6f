"""The cohorts, one entry each. To add one, add an entry here and a test beside the others.

Layouts and labels are those of the downloads; columns of the NSRR's tables are named as in its data
dictionaries, ``nsrr_age`` and ``nsrr_sex`` in all that are harmonized.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from psdnorm.cohorts.file_layout import Candidates


@dataclass(frozen=True)
class People:
    """Where a cohort's tables hold age, sex and family of its subjects.

    Names of files and columns are compared without blanks and case, and each may be absent.

    Parameters
    ----------
    files : tuple of str
        Patterns of file names below the download's root.
    subject : tuple of str
        Columns that may hold the subject's number; leading zeros do not count.
    age, family : tuple of str
        Columns, in order.
    age_at : mapping of str to str
        A column for each visit, where visits have their own; it goes before ``age``.
    sex : mapping of str to mapping of str to {"F", "M"}
        Columns, each with its codes. Words (``male``, ``f``) need none.
    """

    files: tuple[str, ...] = ("datasets/*.csv",)
    subject: tuple[str, ...] = ("nsrrid",)
    age: tuple[str, ...] = ("nsrr_age", "age")
    age_at: Mapping[str, str] = field(default_factory=dict)
    sex: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    family: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cohort:
    """One cohort as it is downloaded.

    Parameters
    ----------
    name : str
        As in the paper.
    signals, scorings : tuple of str
        Paths below the download's root, in order of preference, with ``{subject}``, ``{visit}`` and
        ``?`` for any letter. They are compared without blanks and case.
    channels : mapping of str to tuple of str
        The two derivations, each with the expressions that may stand for it, in order.
    line_hz : float
        Mains frequency where it was recorded.
    people : People, optional
    subject : str
        Regular expression of a subject's number, in lower case and without blanks.
    visits : tuple of str
        What ``{visit}`` may be.
    beside : str
        How names of another cohort's files begin that may lie in the same folder.
    """

    name: str
    signals: tuple[str, ...]
    scorings: tuple[str, ...]
    channels: Candidates
    line_hz: float
    people: People | None = None
    subject: str = r"\d+"
    visits: tuple[str, ...] = ()
    beside: str = ""


def central(*references: str) -> Candidates:
    """Return what may stand for C3-A2 and C4-A1; references are "A" (ear) or "M" (mastoid)."""
    return {
        f"{electrode}-A{side}": tuple(
            f"{prefix}{electrode}-{reference}{side}"
            for prefix in ("", "EEG ")
            for reference in references
        )
        for electrode, side in (("C3", 2), ("C4", 1))
    }


_MALE = {"male": {"0": "F", "1": "M"}}
_GENDER = {"gender": {"1": "M", "2": "F"}}


def _nsrr(
    name: str,
    paths: str | tuple[str, ...],
    channels: Candidates,
    *,
    people: People,
    subject: str = r"\d+",
    visits: tuple[str, ...] = (),
) -> Cohort:
    """Return a cohort of the NSRR; paths of signals and scorings differ in folder and ending."""
    paths = (paths,) if isinstance(paths, str) else paths
    return Cohort(
        name=name,
        signals=tuple(f"polysomnography/edfs/{path}.edf" for path in paths),
        scorings=tuple(
            f"polysomnography/annotations-events-{kind}/{path}-{kind}.xml"
            for path in paths
            for kind in ("nsrr", "profusion")
        ),
        channels=channels,
        line_hz=60,
        people=people,
        subject=subject,
        visits=visits,
    )


ABC = _nsrr(
    "ABC",
    "{visit}/abc-{visit}-{subject}",
    central("M", "A"),
    visits=("baseline", "month09", "month18"),
    people=People(sex=_GENDER),
)

CCSHS = _nsrr("CCSHS", "ccshs-trec-{subject}", central("A", "M"), people=People(sex=_MALE))

CFS = _nsrr(
    "CFS",
    "cfs-visit5-{subject}",
    central("M", "A"),
    people=People(
        sex=_MALE | {"sex": {"0": "F", "1": "M"}},
        family=("familyi", "familyid", "family_id", "famid", "pedid"),
    ),
)

HPAP = _nsrr(
    "HPAP",
    "lab/{visit}/homepap-lab-{visit}-{subject}",
    central("M", "A"),
    # a diagnostic night, and one that is half under treatment: a subject may have both
    visits=("full", "split"),
    people=People(sex={"gender": {}}),  # M and F
)

MROS = _nsrr(
    "MROS",
    "{visit}/mros-{visit}-{subject}",
    central("A", "M"),
    subject=r"[a-z]{2}\d+",
    visits=("visit1", "visit2"),
    people=People(
        age_at={"visit1": "vsage1", "visit2": "vs2age1"},
        sex={"gender": {"2": "M"}},  # men only; and the other way round than elsewhere
    ),
)

SHHS = _nsrr(
    "SHHS",
    "{visit}/{visit}-{subject}",
    # EEG(SEC) and EEG 2 are the first two in other letters
    {"C3-A2": ("EEG(sec)", "EEG2", "EEG sec"), "C4-A1": ("EEG",)},
    visits=("shhs1", "shhs2"),
    people=People(age_at={"shhs1": "age_s1", "shhs2": "age_s2"}, sex=_GENDER),
)

CHAT = _nsrr(
    "CHAT",
    ("{visit}/chat-{visit}-{subject}", "{visit}/chat-baseline-{visit}-{subject}"),
    central("M", "A"),
    visits=("baseline", "followup", "nonrandomized"),
    people=People(
        age=("nsrr_age", "ageyear_at_meas", "age_nr", "age"),
        sex=_MALE | {"chi2": {"1": "M", "2": "F"}, "ref9": {"1": "M", "2": "F"}},
    ),
)

SOF = _nsrr(
    "SOF",
    "sof-{visit}-{subject}",
    central("A", "M"),
    visits=("visit-8",),
    people=People(
        subject=("nsrrid", "sofid"),
        age=("nsrr_age", "v8age", "age"),
        sex={"gender": {"1": "F"}},  # women only
    ),
)

# Sleep Cassette, which fits the paper's counts best. The seventh letter is E, F or G, the
# hypnogram's eighth names its scorer. Files may also lie side by side, as MNE downloads them.
PHYS = Cohort(
    name="PHYS",
    signals=("sleep-cassette/SC4{subject}{visit}?0-PSG.edf", "SC4{subject}{visit}?0-PSG.edf"),
    scorings=(
        "sleep-cassette/SC4{subject}{visit}??-Hypnogram.edf",
        "SC4{subject}{visit}??-Hypnogram.edf",
    ),
    subject=r"\d\d",
    visits=("1", "2"),
    channels={"Fpz-Cz": ("EEG Fpz-Cz", "Fpz-Cz"), "Pz-Oz": ("EEG Pz-Oz", "Pz-Oz")},
    line_hz=50,
    people=People(
        files=("SC-subjects.xls", "SC-subjects.csv", "../SC-subjects.xls", "../SC-subjects.csv"),
        subject=("subject",),
        age=("age",),
        sex={"sex(F=1)": {"1": "F", "2": "M"}},
    ),
    beside="ST7",
)

PHYS_ST = Cohort(
    name="phys-st",
    signals=("sleep-telemetry/ST7{subject}{visit}?0-PSG.edf", "ST7{subject}{visit}?0-PSG.edf"),
    scorings=(
        "sleep-telemetry/ST7{subject}{visit}??-Hypnogram.edf",
        "ST7{subject}{visit}??-Hypnogram.edf",
    ),
    subject=r"\d\d",
    visits=("1", "2"),
    channels=PHYS.channels,
    line_hz=50,
    people=People(
        files=("ST-subjects.xls", "ST-subjects.csv", "../ST-subjects.xls", "../ST-subjects.csv"),
        subject=("nr", "subject"),
        age=("age",),
        sex={"M1/F2": {"1": "M", "2": "F"}},  # the other way round than Cassette's
    ),
    beside="SC4",
)

# SS3 alone: the other subsets have other montages, and some of them epochs of 20 s. It has no Fpz.
MASS = Cohort(
    name="MASS",
    signals=("{subject} PSG.edf", "SS3/{subject} PSG.edf"),
    scorings=("{subject} Base.edf", "SS3/{subject} Base.edf"),
    subject=r"01-03-\d{4}",
    channels={
        "Fpz-Cz": (
            "(EEG Fp1-LER + EEG Fp2-LER)/2 - EEG Cz-LER",
            "(EEG Fp1-CLE + EEG Fp2-CLE)/2 - EEG Cz-CLE",
        ),
        "Pz-Oz": ("EEG Pz-LER - EEG Oz-LER", "EEG Pz-CLE - EEG Oz-CLE"),
    },
    line_hz=60,
)

COHORTS = {
    cohort.name: cohort
    for cohort in (ABC, CCSHS, CFS, HPAP, MROS, SHHS, CHAT, SOF, PHYS, PHYS_ST, MASS)
}
