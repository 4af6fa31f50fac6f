"""Words that every command and page forms alike."""

from collections.abc import Sequence


def plural(number: int, noun: str, nouns: str | None = None) -> str:
    """Return a number with its noun.

    >>> plural(1, "night"), plural(12000, "night"), plural(2, "study", "studies")
    ('1 night', '12,000 nights', '2 studies')
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
