"""What one run is: a cell of the experiment, and the protocol that all cells share."""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from psdnorm.batches import LENGTH, STRIDE
from psdnorm.errors import ArgumentError
from psdnorm.functional import check_size, is_number
from psdnorm.models import (
    NORMS,
    SCHEDULES,
    check_schedule,
    input_scale_setting,
    plain_norm_arguments,
)

MODELS = ("usleep", "cnn-transformer")
TMA = "tma"
AUTO = "auto"  # a filter size that is chosen, see psdnorm.training.filter_size
CELL_NORMS = (*NORMS, TMA)
_WITH_FILTER = ("psd", "psd-white", TMA)
_WITH_DEPTH = ("layer", "instance", "psd", "psd-white")
PROTOCOL_DEPTH = 3  # blocks with the norm
_MOST_SEED = 2**32 - 1  # what NumPy's global generator takes


class _Plain:
    """A frozen dataclass as JSON gives it back."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as something that JSON holds."""
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Build it from what :meth:`to_json` returned; refuse fields that do not exist."""
        name = cls.__name__.lower()
        if not isinstance(document, Mapping):
            raise ArgumentError(f"a {name} is {document!r:.50}, expected a JSON object")
        known = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for key in document:
            if key not in known:
                raise ArgumentError(f"a {name} has {key!r}, expected one of {', '.join(known)}")
        return cls(**document)


@dataclass(frozen=True)
class Cell(_Plain):
    """One training: everything that tells it from the other cells of a grid.

    Parameters
    ----------
    model : {"usleep", "cnn-transformer"}
    norm : {"batch", "layer", "instance", "psd", "psd-white", "tma"}
        The norm of the first blocks; "tma" is BatchNorm behind nights that Temporal Monge
        Alignment has carried onto the barycenter of the training nights.
    filter_size : int or "auto"
        f, of PSDNorm in the first block or of TMA. "auto" has PSDNorm's chosen from the nights that
        train, see :mod:`psdnorm.training.filter_size`. None for norms without a filter.
    norm_depth : int
        Number of blocks with the norm. None for "batch" and "tma", which have BatchNorm in all.
    hold_out : str
        The cohort to test on.
    balanced : int, optional
        At most so many subjects of each other cohort; all if it is not given.
    seed : int
        Of the split, the first weights and the order of the sequences.

    Examples
    --------
    >>> Cell("usleep", "psd", hold_out="CHAT", balanced=400).name
    'usleep_psd_f5_d3_CHAT_at400_seed0'
    >>> Cell("usleep", "batch", filter_size=17) == Cell("usleep", "batch")
    True
    """

    model: str = "usleep"
    norm: str = "psd"
    filter_size: int | str | None = 5
    norm_depth: int | None = PROTOCOL_DEPTH
    hold_out: str = "CHAT"
    balanced: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (("model", MODELS), ("norm", CELL_NORMS)):
            if getattr(self, name) not in allowed:
                raise ArgumentError(
                    f"{name} is {getattr(self, name)!r}, expected one of {', '.join(allowed)}"
                )
        if not isinstance(self.hold_out, str) or not self.hold_out:
            raise ArgumentError(f"hold_out is {self.hold_out!r}, expected the name of a cohort")
        if self.balanced is not None:
            check_size("balanced", self.balanced)
        _check_count("seed", self.seed, _MOST_SEED)
        # what makes no difference is not kept: cells that are the same are equal
        if self.norm not in _WITH_FILTER:
            object.__setattr__(self, "filter_size", None)
        else:
            self._check_filter_size()
            object.__setattr__(self, "filter_size", self.filter_size or 5)
        if self.norm not in _WITH_DEPTH:
            object.__setattr__(self, "norm_depth", None)
        elif self.norm_depth is None:
            object.__setattr__(self, "norm_depth", PROTOCOL_DEPTH)
        else:
            _check_count("norm_depth", self.norm_depth, 20)

    def _check_filter_size(self) -> None:
        if self.filter_size is None:
            return
        if not isinstance(self.filter_size, str):
            check_size("filter_size", self.filter_size)
        elif self.filter_size != AUTO:
            raise ArgumentError(
                f"filter_size is {self.filter_size!r}, expected a whole number from 1 on, or {AUTO}"
            )
        elif self.norm == TMA:
            raise ArgumentError(
                f"filter_size is {AUTO!r} with norm {TMA!r}, expected a whole number from 1 on: "
                "only PSDNorm's can be chosen"
            )

    @property
    def name(self) -> str:
        """Name of a folder that no other cell has."""
        parts = [self.model, self.norm]
        parts += [f"f{self.filter_size}"] if self.filter_size is not None else []
        parts += [f"d{self.norm_depth}"] if self.norm_depth is not None else []
        size = "all" if self.balanced is None else f"at{self.balanced}"
        return "_".join([*parts, quote(self.hold_out, safe=" "), size, f"seed{self.seed}"])


@dataclass(frozen=True)
class Protocol(_Plain):
    """How every cell is trained.

    Parameters
    ----------
    lr : float
        Adam's step size.
    batch_size : int
        Sequences of a batch, over all devices together.
    patience : int
        Epochs without a lower validation loss after which training ends.
    max_epochs : int
        After which it ends in any case.
    length, stride : int
        Epochs of a sequence, and from one to the next.
    validation_fraction : float
        Share of the subjects of each cohort that validates.
    momentum : float
        α of PSDNorm's running barycenter, of all its layers.
    model_arguments : dict
        Arguments of the model beyond those that cell and store set, say ``{"depth": 4}``; where
        models have their own, by the model's name, ``{"usleep": {"depth": 4}}``. Cells whose norm
        is no PSDNorm are built without ``norm_arguments``.
    """

    lr: float = 1e-3
    batch_size: int = 64
    patience: int = 3
    max_epochs: int = 100
    length: int = LENGTH
    stride: int = STRIDE
    validation_fraction: float = 0.2
    momentum: float = 0.01
    model_arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("batch_size", "patience", "max_epochs", "length", "stride"):
            check_size(name, getattr(self, name))
        if self.stride > self.length:
            raise ArgumentError(
                f"stride is {self.stride}, expected at most the {self.length} epochs of a sequence"
            )
        if not is_number(self.lr, 0, 1e30) or self.lr == 0:
            raise ArgumentError(f"lr is {self.lr!r}, expected a number above 0")
        for name in ("validation_fraction", "momentum"):
            value = getattr(self, name)
            if not is_number(value, 0, 1) or value in (0, 1):
                raise ArgumentError(f"{name} is {value!r}, expected a number between 0 and 1")
        try:
            arguments = json.loads(json.dumps(dict(self.model_arguments), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"model_arguments must be a dict that JSON holds: {error}"
            ) from None
        _check_by_model(arguments)
        for own in (arguments, *(arguments.get(model, {}) for model in MODELS)):
            _check_norms(own)
            input_scale_setting(own.get("input_scale", 1.0))  # before a night is made, too
        object.__setattr__(self, "model_arguments", arguments)

    def arguments_of(self, model: str) -> dict[str, Any]:
        """Return the further arguments of a model.

        Parameters
        ----------
        model : {"usleep", "cnn-transformer"}

        Examples
        --------
        >>> Protocol(model_arguments={"depth": 4}).arguments_of("usleep")
        {'depth': 4}
        >>> Protocol(model_arguments={"usleep": {"depth": 4}}).arguments_of("cnn-transformer")
        {}
        """
        if self.model_arguments.keys() & set(MODELS):
            return dict(self.model_arguments.get(model, {}))
        return dict(self.model_arguments)


def filter_size_of(cell: Cell) -> int:
    """Return the filter size of a cell whose norm has one, and a number."""
    assert cell.filter_size not in (None, AUTO), f"{cell.name} has no filter size"
    return int(cell.filter_size)


def with_size(cell: Cell, filter_size: int) -> Cell:
    """Return a cell with a filter size instead of "auto"; another cell as it is.

    Parameters
    ----------
    cell : Cell
    filter_size : int
    """
    return dataclasses.replace(cell, filter_size=filter_size) if cell.filter_size == AUTO else cell


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file of a run; refuse what is none."""
    try:
        return json.loads(Path(path).read_bytes())
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ArgumentError(f"{path} is not JSON: {error}") from error


def _check_by_model(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that are by model in part only."""
    if not arguments.keys() & set(MODELS):
        return
    for name, own in arguments.items():
        if name not in MODELS:
            raise ArgumentError(
                f"model_arguments has {name!r} beside the name of a model, expected one of "
                f"{', '.join(MODELS)}, or no model's name"
            )
        if not isinstance(own, Mapping):
            raise ArgumentError(
                f"model_arguments has {own!r:.50} for {name}, expected an object of arguments"
            )


def _check_norms(arguments: Mapping[str, Any]) -> None:
    """Refuse what no norm takes before a night is made, whatever the norms of the cells."""
    check_schedule(arguments.get("filter_schedule", SCHEDULES[0]))
    if "momentum" in plain_norm_arguments(arguments.get("norm_arguments")):
        raise ArgumentError(
            "model_arguments has 'momentum' in norm_arguments, expected it as the protocol's own "
            "momentum, as a study's file or Protocol(momentum=…) has it"
        )


def _check_count(name: str, value: Any, most: int) -> None:
    if type(value) is not int or not 0 <= value <= most:
        raise ArgumentError(f"{name} is {value!r}, expected a whole number from 0 to {most}")
