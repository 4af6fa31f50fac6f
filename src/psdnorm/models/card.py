"""``config.json``: what a saved model says about itself, checked when written and when read."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import psdnorm
from psdnorm.errors import ArgumentError, CheckpointError

FORMAT_VERSION = 1
STAGES = ("W", "N1", "N2", "N3", "REM")

# what a file of this format holds, and as which JSON types
_FIELDS: dict[str, tuple[type, ...]] = {
    "architecture": (str,),
    "arguments": (dict,),
    "stages": (list, type(None)),
    "recipe": (dict, type(None)),
    "training_data": (str, dict, list, type(None)),
    "licence": (str, type(None)),
    "training_spread": (dict, type(None)),
    "versions": (dict,),
    "weights": (dict,),
}
_SINCE_THEN = ("training_spread",)  # what files of this format may lack, as the first ones do
_KINDS = {str: "text", dict: "a dict", list: "a list", type(None): "None"}
# a stranger's file decides nothing beyond these: bytes of JSON, items of a list, a number
_MOST_BYTES, _MOST_ITEMS, _MOST = 2**24, 2**12, 2**20


def plain_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a model as JSON gives them back; refuse those that it cannot hold."""
    for name, value in config.items():
        if callable(value):
            raise CheckpointError(
                f"a model whose {name} is a callable cannot be saved, found {value!r}, expected a "
                "name, which JSON can hold"
            )
    arguments = _plain("config", dict(config))
    for name, value in arguments.items():
        _check_argument(name, value, "the model")
    return arguments


def card_text(document: Mapping[str, Any]) -> str:
    """Write a card; refuse one that would be too long to be read."""
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if len(text.encode()) > _MOST_BYTES:
        raise CheckpointError(
            f"what the model says about itself has {len(text.encode())} bytes, expected at most "
            f"{_MOST_BYTES}"
        )
    return text


def plain_field(name: str, value: Any) -> Any:
    """Return one field as JSON gives it back; refuse one of another type."""
    value = _plain(name, value)
    if not isinstance(value, _FIELDS[name]):
        raise ArgumentError(f"{name} must be {_kinds(name)}, found {value!r}")
    return value


def plain_stages(stages: Sequence[str] | None, n_outputs: int) -> list[str] | None:
    """Return the names of the outputs; five without names are the five stages of sleep."""
    if stages is None:
        return list(STAGES) if n_outputs == len(STAGES) else None
    if isinstance(stages, str) or not isinstance(stages, Sequence):
        raise ArgumentError(f"stages must be a sequence of names, found {stages!r}")
    if not _are_stages(list(stages), n_outputs):
        raise ArgumentError(f"stages must name the model's {n_outputs} outputs, found {stages!r}")
    return list(stages)


def read_card(path: Path) -> dict[str, Any]:
    """Read ``config.json``; refuse what is none, or newer, or not of the types that it has."""
    card = _read_json(path)
    version = card.get("format_version") if isinstance(card, dict) else None
    if type(version) is not int or version < 1:  # True is an int too
        raise CheckpointError(
            f"{path} does not describe a model: its format_version is {version!r:.50}, expected "
            f"{FORMAT_VERSION}"
        )
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format_version {version}, newer than {FORMAT_VERSION}, which psdnorm "
            f"{psdnorm.__version__} reads: upgrade psdnorm"
        )
    card = dict.fromkeys(_SINCE_THEN) | card
    for name in _FIELDS:
        if name not in card:
            raise CheckpointError(f"{path} lacks {name!r}, expected {_kinds(name)}")
        if not isinstance(card[name], _FIELDS[name]):
            raise CheckpointError(
                f"{path} has {card[name]!r:.50} as {name!r}, expected {_kinds(name)}"
            )
    for name, value in card["arguments"].items():
        _check_argument(name, value, path)
    return card


def check_stages(card: Mapping[str, Any], n_outputs: int, path: Path) -> None:
    """Refuse a card whose stages are not the names of the outputs."""
    if card["stages"] is not None and not _are_stages(card["stages"], n_outputs):
        raise CheckpointError(
            f"{path} has {card['stages']!r:.50} as 'stages', expected the names of {n_outputs} "
            "outputs"
        )


def _are_stages(stages: list[Any], n_outputs: int) -> bool:
    return len(stages) == n_outputs and all(isinstance(name, str) for name in stages)


def _kinds(name: str) -> str:
    return " or ".join(_KINDS[kind] for kind in _FIELDS[name])


def _plain(name: str, value: Any) -> Any:
    """Return a value as JSON gives it back; NumPy's numbers and arrays become plain ones."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, default=_from_numpy)
        return json.loads(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{name} must be something that JSON can hold: {error}") from error


def _from_numpy(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"found a {type(value).__name__}")


def _read_json(path: Path) -> Any:
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist, expected the description of a model")
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise CheckpointError(f"{path} has {size} bytes, expected at most {_MOST_BYTES}")
    try:
        return json.loads(path.read_bytes().decode(), parse_constant=_refuse_constant)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON's")


def _check_argument(name: str, value: Any, path: Path | str) -> None:
    """Refuse an argument that no model takes before a model is built with it."""
    held = list(value.values()) if isinstance(value, dict) else value
    items = held if isinstance(held, list) else [held]
    if len(items) > _MOST_ITEMS or any(isinstance(item, list | dict) for item in items):
        raise CheckpointError(
            f"{path} has {value!r:.50} as the argument {name!r}, expected a number, a name, or a "
            f"list or a dict of at most {_MOST_ITEMS} of them"
        )
    for item in items:
        if isinstance(item, int | float) and abs(item) > _MOST:
            raise CheckpointError(
                f"{path} has {item!r:.50} as the argument {name!r}, expected at most {_MOST}"
            )
