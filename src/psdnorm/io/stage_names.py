"""The names that scorers give to stages: AASM, Rechtschaffen & Kales, and their spellings."""

import re

from psdnorm.io.recording import UNSCORED

_NAMES = {
    0: ("w", "wake", "awake", "wakefulness", "0", "s0", "n0"),
    1: ("1", "n1", "s1", "nrem1", "nonrem1"),
    2: ("2", "n2", "s2", "nrem2", "nonrem2"),
    # Rechtschaffen & Kales' stages 3 and 4 are one since AASM
    3: ("3", "n3", "s3", "nrem3", "nonrem3", "4", "n4", "s4", "nrem4", "nonrem4"),
    4: ("r", "rem", "5"),
    UNSCORED: (
        *("?", "-1", "9", "unscored", "unknown", "undefined", "n/a", "nan"),
        *("6", "m", "mt", "movement", "movementtime"),
    ),
}
_STAGES = {name: stage for stage, names in _NAMES.items() for name in names}
# digits that two conventions read otherwise
_FOUR, _FIVE = "4", "5"


def stage_of(text: str) -> int | None:
    """Return the stage that a text names, -1 for unscored, None if it names none.

    ``W``, ``N3``, ``REM``, ``Sleep stage 4``, ``Stage 2 sleep``, ``SLEEP-S1`` and the like, in any
    case. Digits are Rechtschaffen & Kales': 0 is wake, 4 is stage 4, so N3, and 5 is REM.
    """
    # the minus of -1 stays, the hyphen of SLEEP-S1 goes
    name = re.sub(r"(?<=\w)[\s_-]+(?=[\w?])", "", text.strip().casefold())
    bare = re.sub(r"^(sleepstage|stage|sleep)|sleep$", "", name)
    return _STAGES.get(bare, _STAGES.get(name))


def says_stage(text: str) -> bool:
    """Return whether a text claims to name a stage, known or not: ``Sleep stage …``."""
    # an underscore ends the word, too: sleep_stage_W
    words = r"\s*(sleep[\s_-]*stage|stage|movement[\s_]+time)(?![^\W_])"
    return re.match(words, text, re.I) is not None


def digits_are_ambiguous(texts: set[str]) -> bool:
    """Return whether a 4 could as well be REM, counted 0…4, as N3: where no 5 is beside it."""
    return _FOUR in texts and _FIVE not in texts
