"""A YAML file as plain values; what YAML would drop silently is refused."""

import os
from pathlib import Path
from typing import Any

from psdnorm.errors import ArgumentError, MissingExtraError


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """Read a YAML file; refuse one that is none, or has a key twice.

    Parameters
    ----------
    path : path
    """
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
        return yaml.load(Path(path).read_text(encoding="utf-8"), Loader)
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path} is not a text file in UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ArgumentError(f"{path}{where}: expected YAML, found that {problem}") from error
