"""Texts as markup, and numbers in them."""

import html
import json
import re
from typing import Any

_NUMBER = re.compile(r"[+−-]?\d[\d,]*(?:\.\d+)?")
_TURNING = re.compile("\\S*[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]\\S*")


def flowing(text: str) -> str:
    """Return a text in which no line ends between a number and its %."""
    return re.sub(r"(?<=\d) %", "&nbsp;%", escaped(text))


def escaped(text: str) -> str:
    """Return a text as markup; names that turn the direction of writing turn only their own."""
    return _TURNING.sub(r"<bdi>\g<0></bdi>", html.escape(text))


def json_in_script(document: Any) -> str:
    """Return JSON that ends no script, whatever the names in it."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def leading_number(text: str) -> float | None:
    """Return the number that a text begins with, if it does."""
    found = _NUMBER.match(text)
    return float(found[0].replace(",", "").replace("−", "-")) if found else None
