"""The known cohorts, one entry each. To add one, add an entry here and a test beside the others.

Layouts and labels match the downloads; columns of the NSRR's tables are named as in its data
dictionaries, ``nsrr_age`` and ``nsrr_sex`` in all harmonized tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from psdnorm.cohorts.file_layout import Candidates


@dataclass(frozen=True)
class People:
    """Where a cohort's tables store age, sex and family of its subjects.

    Names of files and columns are compared ignoring blanks and case; each may be absent.
    """

    files: tuple[str, ...] = ("datasets/*.csv",)  # patterns below the download's root
    subject: tuple[str, ...] = ("nsrrid",)  # columns; leading zeros of a number are ignored
    age: tuple[str, ...] = ("nsrr_age", "age")  # columns, in order of preference
    age_at: Mapping[str, str] = field(default_factory=dict)  # by visit; preferred to `age`
    # columns, each with its codes for F and M; words (male, f) need no codes
    sex: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    family: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cohort:
    """One cohort as downloaded.

    Signals and scorings are paths below the download's root, in order of preference, with
    ``{subject}``, ``{visit}`` and ``?`` for any letter, compared ignoring blanks and case.
    """

    name: str  # as in the paper
    signals: tuple[str, ...]
    scorings: tuple[str, ...]
    channels: Candidates
    line_hz: float  # mains frequency at the recording site
    people: People | None = None
    subject: str = r"\d+"  # regular expression of a subject's number, lower case, without blanks
    visits: tuple[str, ...] = ()
    beside: str = ""  # file name prefix of another cohort in the same folder


def central(*references: str) -> Candidates:
    """Return the candidates for C3-A2 and C4-A1; references are "A" (ear) or "M" (mastoid)."""
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


def _nsrr(*paths: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths of NSRR signals and scorings, which differ in folder and ending."""
    return (
        tuple(f"polysomnography/edfs/{path}.edf" for path in paths),
        tuple(
            f"polysomnography/annotations-events-{kind}/{path}-{kind}.xml"
            for path in paths
            for kind in ("nsrr", "profusion")
        ),
    )


ABC = Cohort(
    "ABC",
    *_nsrr("{visit}/abc-{visit}-{subject}"),
    central("M", "A"),
    line_hz=60,
    people=People(sex=_GENDER),
    visits=("baseline", "month09", "month18"),
)

CCSHS = Cohort("CCSHS", *_nsrr("ccshs-trec-{subject}"), central("A", "M"), 60, People(sex=_MALE))

CFS = Cohort(
    "CFS",
    *_nsrr("cfs-visit5-{subject}"),
    central("M", "A"),
    line_hz=60,
    people=People(
        sex=_MALE | {"sex": {"0": "F", "1": "M"}},
        family=("familyi", "familyid", "family_id", "famid", "pedid"),
    ),
)

HPAP = Cohort(
    "HPAP",
    *_nsrr("lab/{visit}/homepap-lab-{visit}-{subject}"),
    central("M", "A"),
    line_hz=60,
    people=People(sex={"gender": {}}),  # M and F
    # a fully diagnostic night, and one half under treatment; a subject may have both
    visits=("full", "split"),
)

MROS = Cohort(
    "MROS",
    *_nsrr("{visit}/mros-{visit}-{subject}"),
    central("A", "M"),
    line_hz=60,
    people=People(
        age_at={"visit1": "vsage1", "visit2": "vs2age1"},
        sex={"gender": {"2": "M"}},  # men only, and coded the other way round than elsewhere
    ),
    subject=r"[a-z]{2}\d+",
    visits=("visit1", "visit2"),
)

SHHS = Cohort(
    "SHHS",
    *_nsrr("{visit}/{visit}-{subject}"),
    # also matches EEG(SEC) and EEG 2, as case and blanks are ignored
    {"C3-A2": ("EEG(sec)", "EEG2", "EEG sec"), "C4-A1": ("EEG",)},
    line_hz=60,
    people=People(age_at={"shhs1": "age_s1", "shhs2": "age_s2"}, sex=_GENDER),
    visits=("shhs1", "shhs2"),
)

CHAT = Cohort(
    "CHAT",
    *_nsrr("{visit}/chat-{visit}-{subject}", "{visit}/chat-baseline-{visit}-{subject}"),
    central("M", "A"),
    line_hz=60,
    people=People(
        age=("nsrr_age", "ageyear_at_meas", "age_nr", "age"),
        sex=_MALE | {"chi2": {"1": "M", "2": "F"}, "ref9": {"1": "M", "2": "F"}},
    ),
    visits=("baseline", "followup", "nonrandomized"),
)

SOF = Cohort(
    "SOF",
    *_nsrr("sof-{visit}-{subject}"),
    central("A", "M"),
    line_hz=60,
    people=People(
        subject=("nsrrid", "sofid"),
        age=("nsrr_age", "v8age", "age"),
        sex={"gender": {"1": "F"}},  # women only
    ),
    visits=("visit-8",),
)


# Sleep Cassette, which fits the paper's counts best. The seventh letter is E, F or G, the
# hypnogram's eighth identifies its scorer. MNE downloads all files into a single folder.
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
        sex={"M1/F2": {"1": "M", "2": "F"}},  # the opposite of Cassette's codes
    ),
    beside="SC4",
)

# SS3 only: the other subsets have other montages, and some have epochs of 20 s. SS3 has no Fpz.
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
