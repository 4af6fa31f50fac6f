"""``recipe.json``: how the nights of a store were prepared, and that it is one way only."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psdnorm.errors import StoreError
from psdnorm.runtime.files import create_once
from psdnorm.store.night import Layout

FILE = "recipe.json"
FORMAT_VERSION = 1


def recipe_hash(recipe: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a recipe: the same for the same keys and values in any order."""
    return hashlib.sha256(_canonical(recipe).encode()).hexdigest()


def plain(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe as it is read back: a dict of what JSON knows."""
    return json.loads(_canonical(recipe))


def write_recipe(folder: Path, recipe: Mapping[str, Any], layout: Layout) -> None:
    """Write ``recipe.json`` unless another process just did."""
    document = {
        "format_version": FORMAT_VERSION,
        "hash": recipe_hash(recipe),
        "recipe": plain(recipe),
        "layout": dataclasses.asdict(layout),
    }
    text = json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    create_once(folder / FILE, text.encode())


def read_recipe(folder: Path) -> tuple[dict[str, Any], Layout]:
    """Read and check ``recipe.json``."""
    path = folder / FILE
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise StoreError(f"{folder} is not a store: it has no {FILE}") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not JSON: {error}") from error
    version = document.get("format_version") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise StoreError(f"{path} has format_version {version!r:.50}, expected {FORMAT_VERSION}")
    recipe, layout = document.get("recipe"), document.get("layout")
    if not isinstance(recipe, dict) or recipe_hash(recipe) != document.get("hash"):
        raise StoreError(f"{path} was changed: its recipe does not have the hash that it states")
    fields = [field.name for field in dataclasses.fields(Layout)]
    if not isinstance(layout, dict) or sorted(layout) != sorted(fields):
        raise StoreError(f"{path} has {layout!r:.80} as layout, expected {', '.join(fields)}")
    return recipe, Layout(**layout)


def check_same(
    folder: str | os.PathLike[str], found: Mapping[str, Any], asked: Mapping[str, Any]
) -> None:
    """Refuse another recipe than that of the store, naming a key in which they differ."""
    if recipe_hash(found) == recipe_hash(asked):
        return
    absent = object()
    keys = sorted({*found, *asked})
    key = next(k for k in keys if found.get(k, absent) != asked.get(k, absent))
    raise StoreError(
        f"{folder} holds nights of the recipe {recipe_hash(found)[:12]}, found the recipe "
        f"{recipe_hash(asked)[:12]}, which differs in {key!r}: a store never mixes recipes"
    )


def _canonical(recipe: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(recipe), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"recipe must be a dict that JSON can hold: {error}") from error
