"""Options that are lists: words and numbers between commas, or JSON."""

import json
from typing import Any

from psdnorm.errors import ArgumentError


def words(option: str, text: str) -> tuple[str, ...]:
    """Take a list of words apart.

    Parameters
    ----------
    option : str
        Its name, for the sentence that refuses it.
    text : str
    """
    found = tuple(word.strip() for word in text.split(","))
    if not all(found):
        raise ArgumentError(f"{option} is {text!r}, expected words between commas")
    return found


def numbers(option: str, text: str, least: int = 1) -> tuple[int, ...]:
    """Take a list of whole numbers apart.

    Parameters
    ----------
    option : str
    text : str
    least : int
        The smallest that is allowed.
    """
    found = words(option, text)
    if not all(word.isdecimal() and int(word) >= least for word in found):
        raise ArgumentError(
            f"{option} is {text!r}, expected whole numbers from {least} on between commas"
        )
    return tuple(int(word) for word in found)


def sizes(option: str, text: str) -> tuple[int | None, ...]:
    """Take a list of numbers of subjects apart; None for ``all``.

    Parameters
    ----------
    option : str
    text : str
    """
    return tuple(
        None if word == "all" else numbers(option, word)[0] for word in words(option, text)
    )


def filter_sizes(option: str, text: str) -> tuple[int | str, ...]:
    """Take a list of filter sizes apart: whole numbers from 1 on, or ``auto``.

    Parameters
    ----------
    option : str
    text : str
    """
    found = words(option, text)
    if not all(map(_is_filter_size, found)):
        raise ArgumentError(
            f"{option} is {text!r}, expected whole numbers from 1 on between commas, or auto"
        )
    return tuple(word if word == "auto" else int(word) for word in found)


def one_filter_size(option: str, text: str) -> int | str:
    """Read a filter size: a whole number from 1 on, or ``auto``.

    Parameters
    ----------
    option : str
    text : str
    """
    if not _is_filter_size(text):
        raise ArgumentError(f"{option} is {text!r}, expected a whole number from 1 on, or auto")
    return text if text == "auto" else int(text)


def _is_filter_size(word: str) -> bool:
    return word == "auto" or (word.isdecimal() and int(word) >= 1)


def json_object(option: str, text: str) -> dict[str, Any]:
    """Read an option that is a JSON object.

    Parameters
    ----------
    option : str
    text : str
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ArgumentError(f"{option} is {text!r:.50}, expected JSON: {error}") from None
    if not isinstance(found, dict):
        raise ArgumentError(f"{option} is {text!r:.50}, expected a JSON object")
    return found
