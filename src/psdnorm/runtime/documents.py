"""JSON and YAML files as plain values, and the hash of such values."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from psdnorm.errors import ArgumentError, MissingExtraError, PsdnormError, os_errors_as
from psdnorm.runtime.files import written


def json_text(document: Any) -> str:
    """Return a document as indented JSON; NaN and infinity raise ValueError."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file atomically."""
    content = json_text(document).encode()
    with written(path) as file:
        file.write(content)


def read_json(path: str | os.PathLike[str], kind: type[PsdnormError] = ArgumentError) -> Any:
    """Read a JSON file; raise ``kind`` if it cannot be read or is not JSON."""
    with os_errors_as(kind, path, "cannot be read"):
        content = Path(path).read_bytes()
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise kind(f"{path} is not JSON: {error}") from error


def digest(document: Any) -> str:
    """Return the SHA-256 of a document that JSON can hold; the order of its keys is irrelevant."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """Read a YAML file; raise ArgumentError if it is invalid or repeats a key."""
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError('a study needs PyYAML: pip install "psdnorm[train]"') from error

    class Loader(yaml.SafeLoader):
        """Plain values, each key once."""

    def mapping(loader: Any, node: Any) -> dict:
        found: dict = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} is not a word", problem_mark=key_node.start_mark
                )
            if key in found:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} is there twice", problem_mark=key_node.start_mark
                )
            found[key] = loader.construct_object(value_node, deep=True)
        return found

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    try:
        with os_errors_as(ArgumentError, path, "cannot be read"):
            text = Path(path).read_text(encoding="utf-8")
        return yaml.load(text, Loader)
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path} is not a text file in UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ArgumentError(f"{path}{where}: expected YAML, found that {problem}") from error
