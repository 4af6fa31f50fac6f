"""Recipes: named settings that determine every sample of a prepared night."""

import dataclasses
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from psdnorm.constants import EPOCH_S
from psdnorm.errors import ArgumentError, os_errors_as
from psdnorm.io import fold
from psdnorm.store import DTYPES, Layout

# of the code in signals.py; incremented whenever the same recipe would give different samples
ALGORITHM_VERSION = 1
SCALINGS = ("none", "epoch", "recording")
# transition bandwidth by MNE's rule: a fraction of the low-pass edge, and the minimum in Hz
TRANSITION, NARROWEST_HZ = 0.25, 2.0
_TRIMS = ("none", "all")
_SUFFIXES = (".json", ".toml")


def _is_positive(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < math.inf  # type: ignore[operator]


@dataclass(frozen=True)
class Recipe:
    """How nights are prepared.

    Parameters
    ----------
    scaling : {"none", "epoch", "recording"}
        ``none`` leaves µV. ``epoch`` subtracts the mean of each 30 s epoch and channel and divides
        by its standard deviation. ``recording`` subtracts from each channel of a night its median
        and divides by its interquartile range.
    clip : float or None
        Largest absolute value after scaling.
    trim : {"none", "all"} or tuple of str
        Cohorts in which wake is cut off except ``trim_margin_s`` seconds before and after sleep.
    sfreq, dtype
        Sampling rate in Hz and type, float16 or float32, of the stored signals.
    """

    name: str
    scaling: str = "none"
    clip: float | None = None
    trim: str | tuple[str, ...] = "none"
    trim_margin_s: float = 1800.0
    lowpass_hz: float = 30.0
    sfreq: float = 100.0
    n_channels: int = 2
    dtype: str = "float16"

    def __post_init__(self) -> None:
        if isinstance(self.trim, list):
            object.__setattr__(self, "trim", tuple(self.trim))
        named = isinstance(self.name, str) and self.name.isprintable() and self.name != ""
        self._check("name", named, "a short text")
        self._check("scaling", self.scaling in SCALINGS, f"one of {', '.join(SCALINGS)}")
        self._check("clip", self.clip is None or _is_positive(self.clip), "a number or none")
        listed = isinstance(self.trim, tuple) and all(isinstance(each, str) for each in self.trim)
        self._check("trim", listed or self.trim in _TRIMS, "none, all or a list of cohorts")
        for field in ("lowpass_hz", "sfreq"):
            self._check(field, _is_positive(getattr(self, field)), "a positive number of Hz")
        margin = self.trim_margin_s
        self._check("trim_margin_s", margin == 0 or _is_positive(margin), "seconds from 0 on")
        counted = type(self.n_channels) is int and self.n_channels > 0
        self._check("n_channels", counted, "a positive whole number")
        self._check("dtype", self.dtype in DTYPES, f"one of {', '.join(DTYPES)}")
        n_times = self.sfreq * EPOCH_S
        self._check("sfreq", n_times == int(n_times), "a whole number of samples in 30 s")
        highest = min(self.sfreq / 2 / (1 + TRANSITION), self.sfreq / 2 - NARROWEST_HZ)
        self._check(
            "lowpass_hz", self.lowpass_hz <= highest, f"at most {highest:g} for {self.sfreq:g} Hz"
        )

    def _check(self, field: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ArgumentError(
                f"the recipe's {field} is {getattr(self, field)!r:.80}, expected {expected}"
            )

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Return a recipe from the output of :meth:`to_dict`, such as that of a store."""
        fields = dict(document)
        version = fields.pop("version", ALGORITHM_VERSION)
        if version != ALGORITHM_VERSION:
            raise ArgumentError(
                f"the recipe's version is {version!r:.50}, expected {ALGORITHM_VERSION}, the one "
                "that this psdnorm prepares"
            )
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(map(str, fields.keys() - set(known)))
        if unknown:
            raise ArgumentError(
                f"the recipe has {', '.join(unknown):.80}, expected only {', '.join(known)}"
            )
        if "name" not in fields:
            raise ArgumentError("the recipe has no name")
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Return all settings as a JSON-compatible dict, with the algorithm's version."""
        fields = dataclasses.asdict(self)
        # 500 and 500.0 must have the same hash
        for name in ("clip", "trim_margin_s", "lowpass_hz", "sfreq"):
            fields[name] = None if fields[name] is None else float(fields[name])
        fields["trim"] = self.trim if isinstance(self.trim, str) else list(self.trim)
        return {**fields, "version": ALGORITHM_VERSION}

    def layout(self) -> Layout:
        return Layout(self.n_channels, int(self.sfreq * EPOCH_S), float(self.sfreq), self.dtype)

    def trims(self, cohort: str) -> bool:
        """Return whether wake before and after sleep is cut off in a cohort."""
        if isinstance(self.trim, str):
            return self.trim == "all"
        return fold(cohort) in map(fold, self.trim)


RECIPES = {
    "paper": Recipe("paper", scaling="none", clip=500.0, trim=("PHYS", "phys-st")),
    "as-released": Recipe("as-released", scaling="epoch", trim="all"),
    "robust": Recipe("robust", scaling="recording", clip=20.0),
}


def load_recipe(name_or_path: str | Path) -> Recipe:
    """Return one of :data:`RECIPES`, or load one from a ``.json`` or ``.toml`` file.

    The file has the fields of :class:`Recipe`. ``base = "paper"`` takes missing fields from that
    recipe; ``clip = "none"`` disables clipping; the name defaults to the file's.
    """
    if str(name_or_path) in RECIPES:
        return RECIPES[str(name_or_path)]
    path = Path(name_or_path)
    if path.suffix.lower() not in _SUFFIXES:
        raise ArgumentError(
            f"recipe is {str(name_or_path)!r}, expected {', '.join(RECIPES)} or a file that ends "
            f"in {' or '.join(_SUFFIXES)}"
        )
    with os_errors_as(ArgumentError, path, "cannot be read"):
        content = path.read_bytes()
    loads = tomllib.loads if path.suffix.lower() == ".toml" else json.loads
    try:
        document = loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} is not a recipe: {str(error).splitlines()[0]:.100}") from error
    if not isinstance(document, dict):
        raise ArgumentError(f"{path} holds {type(document).__name__}, expected a recipe's fields")
    fields = {"name": path.stem} | document
    if fields.get("clip") == "none":
        fields["clip"] = None  # TOML has no null
    base = fields.pop("base", None)
    if base is not None:
        if base not in RECIPES:
            raise ArgumentError(
                f"{path} has {base!r:.50} as base, expected one of {', '.join(RECIPES)}"
            )
        fields = RECIPES[base].to_dict() | fields
    try:
        return Recipe.from_dict(fields)
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None
