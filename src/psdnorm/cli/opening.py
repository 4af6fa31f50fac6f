"""A store that networks learn from: opened, or refused with what to do about it."""

from pathlib import Path
from typing import TYPE_CHECKING

from psdnorm.errors import StoreError

if TYPE_CHECKING:
    from psdnorm.store import Store


def open_nights(path: Path) -> "Store":
    """Open a store and its index; of a night that is broken, say what can be done.

    Parameters
    ----------
    path : Path
    """
    from psdnorm.store import Store

    store = Store.open(path)
    try:
        _ = store.index
    except StoreError as error:
        raise StoreError(
            f"{error}; give the command of psdnorm prepare again to write it anew, or do without: "
            f"remove the file and {path / 'index.parquet'}, which is rebuilt"
        ) from error
    return store


def recipe_name(store: "Store") -> str:
    """Return what tables call the recipe of a store: its name, else the start of its hash.

    Parameters
    ----------
    store : Store
    """
    return str(store.recipe.get("name") or store.hash[:12])
