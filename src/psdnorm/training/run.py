"""A run, identified by model, norm, data and seed, and the protocol that all runs share."""

import dataclasses
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote

from psdnorm.batches import LENGTH, STRIDE
from psdnorm.errors import ArgumentError
from psdnorm.functional import check_size, is_number
from psdnorm.models import (
    NORMS,
    PSD_NORMS,
    SCHEDULES,
    check_schedule,
    input_scale_setting,
    plain_norm_arguments,
)
from psdnorm.runtime import plural

MODEL_NAMES = {"usleep": "U-Sleep", "cnn-transformer": "CNNTransformer"}
MODELS = tuple(MODEL_NAMES)
TMA, ADABN = "tma", "adabn"
# the norms in the paper's order, with the paper's names
NORM_NAMES = {
    "batch": "BatchNorm",
    "adabn3": "AdaBN(3)",
    "adabn12": "AdaBN(12)",
    "adabnall": "AdaBN(all)",
    "layer": "LayerNorm",
    "instance": "InstanceNorm",
    TMA: "TMA",
    "psd-white": "PSDNorm-white",
    "psd-unit": "PSDNorm-unit",
    "psd-night": "PSDNorm-night",
    "psd-night-unit": "PSDNorm-night-unit",
    "psd": "PSDNorm",
}
PAPER_NORMS = ("batch", "layer", "instance", TMA, "psd")  # those in its main tables
# "psd" with other arguments, so that one grid can compare them
VARIANTS: dict[str, dict[str, str]] = {
    "psd-unit": {"target_power": "unit"},
    "psd-night": {"statistics": "domain"},
    "psd-night-unit": {"statistics": "domain", "target_power": "unit"},
}
TRAINED_NORMS = (*NORMS, *VARIANTS, TMA)
WITH_PSD_NORM = (*PSD_NORMS, *VARIANTS)
_WITH_FILTER = (*WITH_PSD_NORM, TMA)
_WITH_DEPTH = ("layer", "instance", *WITH_PSD_NORM)

AUTO = "auto"  # choose the filter size from data, see psdnorm.training.filter_size
AUTO_SIZE = 2**31 - 1  # represents "auto" where filter sizes must be numbers; sorts last
PROTOCOL_FILTER = 5
PROTOCOL_DEPTH = 3  # blocks with the norm
SIZES = ("filter_size", "norm_depth")
ARM = ["model", "norm", *SIZES, "balanced"]  # columns that identify an arm
ALL = "all"
# of 64 in a batch: more nights make a better barycenter, more sequences better statistics of each
_SEQUENCES_PER_NIGHT = 4
_MOST_SEED = 2**32 - 1  # the maximum for NumPy's global generator


def norm_name(norm: str) -> str:
    """Return the paper's name of a norm, including AdaBN with any number of layers.

    >>> norm_name("psd"), norm_name("adabn7")
    ('PSDNorm', 'AdaBN(7)')
    """
    if norm.startswith(ADABN):
        return f"AdaBN({norm.removeprefix(ADABN)})"
    return NORM_NAMES.get(norm, norm)


def model_name(model: str) -> str:
    """Return the paper's name of a model."""
    return MODEL_NAMES.get(model, model)


def setting_name(model: str, balanced: int | str | None) -> str:
    """Describe a model and the size of its training set.

    >>> setting_name("usleep", "all"), setting_name("usleep", 40)
    ('U-Sleep, all subjects', 'U-Sleep, balanced@40')
    """
    size = "all subjects" if balanced in (None, ALL) else f"balanced@{balanced}"
    return f"{model_name(model)}, {size}"


def unusual(filter_size: Any = None, norm_depth: Any = None, said: Collection[str] = ()) -> str:
    """Describe the settings that differ from the protocol, and always those in ``said``.

    None and NA mean that the norm has no such setting.

    >>> unusual(17, 1), unusual(5, 3), unusual(5, 3, ["filter_size"])
    (' (f = 17, 1 block)', '', ' (f = 5)')
    >>> unusual("auto", 3)
    ' (f auto)'
    """
    filter_size, norm_depth = (None if _is_na(n) else n for n in (filter_size, norm_depth))
    parts = []
    if filter_size in (AUTO, AUTO_SIZE):
        parts.append("f auto")
    elif filter_size is not None and (filter_size != PROTOCOL_FILTER or "filter_size" in said):
        parts.append(f"f = {filter_size}")
    if norm_depth is not None and (norm_depth != PROTOCOL_DEPTH or "norm_depth" in said):
        parts.append(plural(norm_depth, "block"))
    return f" ({', '.join(parts)})" if parts else ""


def _is_na(value: Any) -> bool:
    import pandas as pd

    return bool(pd.isna(value))


class JsonRecord:
    """A frozen dataclass that converts to and from JSON."""

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        name = cls.__name__.lower()
        if not isinstance(document, Mapping):
            raise ArgumentError(f"a {name} is {document!r:.50}, expected a JSON object")
        known = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for key in document:
            if key not in known:
                raise ArgumentError(f"a {name} has {key!r}, expected one of {', '.join(known)}")
        return cls(**document)


@dataclass(frozen=True)
class Arm:
    """The unit of comparison: all runs that differ only in cohort and seed.

    Attributes
    ----------
    model, norm : str
    filter_size, norm_depth : int, optional
        None if the norm has no such setting; :data:`AUTO_SIZE` if the filter size is "auto".
    balanced : int or "all"
        Empty if unknown.
    """

    model: str
    norm: str
    filter_size: int | None = None
    norm_depth: int | None = None
    balanced: int | str = ""

    @classmethod
    def of_protocol(cls, model: str, norm: str, balanced: int | str = ALL) -> Self:
        """Return the arm with the protocol's filter size and depth."""
        size = PROTOCOL_FILTER if norm in _WITH_FILTER else None
        return cls(model, norm, size, PROTOCOL_DEPTH if norm in _WITH_DEPTH else None, balanced)

    @classmethod
    def of_network(cls, model: str, norm: str, filter_size: Any, norm_depth: Any) -> Self:
        """Return the arm of a network, without settings that do not apply to its norm."""
        size = filter_size if norm in _WITH_FILTER else None
        return cls(model, norm, size, norm_depth if norm in _WITH_DEPTH else None)

    @classmethod
    def of_row(cls, row: Any) -> Self:
        """Return the arm of a row of a table of runs, see :meth:`Run.row`."""
        values = (row[name] for name in ("filter_size", "norm_depth", "balanced"))
        size, depth, balanced = (None if _is_na(value) else int(value) for value in values)
        return cls(row["model"], row["norm"], size, depth, balanced or ALL)

    @property
    def is_protocol(self) -> bool:
        """Whether filter size and depth match the protocol."""
        usual_depth = self.norm_depth in (None, PROTOCOL_DEPTH)
        return usual_depth and self.filter_size in (None, PROTOCOL_FILTER)

    @property
    def label(self) -> str:
        """Its name in tables and folders, such as ``usleep psd f5 d3 @400``."""
        return " ".join([*self._parts, *([f"@{self.balanced}"] if self.balanced else [])])

    @property
    def _parts(self) -> list[str]:
        size = AUTO if self.filter_size == AUTO_SIZE else self.filter_size
        parts = [self.model, self.norm]
        parts += [f"f{size}"] if size is not None else []
        return parts + ([f"d{self.norm_depth}"] if self.norm_depth is not None else [])

    def named(self, said: Collection[str] = ()) -> str:
        """Return its norm and settings that differ from the protocol, e.g. "PSDNorm (f = 17)".

        >>> Arm("usleep", "psd", 17, 3).named(), Arm("usleep", "psd", 5, 3).named(SIZES)
        ('PSDNorm (f = 17)', 'PSDNorm (f = 5, 3 blocks)')
        """
        return norm_name(self.norm) + unusual(self.filter_size, self.norm_depth, said)


@dataclass(frozen=True)
class Run(JsonRecord):
    """One training and its evaluation: everything that distinguishes it from other runs of a grid.

    Parameters
    ----------
    model : {"usleep", "cnn-transformer"}
    norm : str
        The norm of the first blocks: "batch", "layer", "instance", "psd" or "psd-white".
        "psd-unit" is "psd" with ``target_power="unit"``; "psd-night" has ``statistics="domain"``
        with every night as a domain, "psd-night-unit" both. "tma" is BatchNorm on nights that
        Temporal Monge Alignment has mapped onto the barycenter of the training set. "adabn3",
        "adabn12", "adabnall", … are not trained: they evaluate the "batch" run with its first
        batch norms (or all) adapted to each subject.
    filter_size : int or "auto"
        f, of PSDNorm in the first block or of TMA. "auto" chooses PSDNorm's on the training set,
        see :mod:`psdnorm.training.filter_size`. None for norms without a filter.
    norm_depth : int
        Number of blocks with the norm. None for norms that are used in all blocks.
    hold_out : str
        The cohort to test on.
    balanced : int, optional
        Maximum number of subjects per training cohort; by default all are used.
    seed : int
        Seed of the split, the initial weights and the order of the sequences.

    Examples
    --------
    >>> run = Run("usleep", "psd", hold_out="CHAT", balanced=400)
    >>> run.name, run.label
    ('usleep_psd_f5_d3_CHAT_at400_seed0', 'usleep psd f5 d3 @400')
    >>> Run("usleep", "batch", filter_size=17) == Run("usleep", "batch")
    True
    >>> Run("usleep", "adabn3", hold_out="CHAT").base.name
    'usleep_batch_CHAT_all_seed0'
    """

    model: str = "usleep"
    norm: str = "psd"
    filter_size: int | str | None = PROTOCOL_FILTER
    norm_depth: int | None = PROTOCOL_DEPTH
    hold_out: str = "CHAT"
    balanced: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ArgumentError(f"model is {self.model!r}, expected one of {', '.join(MODELS)}")
        if self.norm not in TRAINED_NORMS and not self.is_adapted:
            known = ", ".join((*TRAINED_NORMS, *(f"{ADABN}{n}" for n in (3, 12, "all"))))
            raise ArgumentError(f"norm is {self.norm!r}, expected one of {known}")
        _ = self.layers  # checks the number
        if not isinstance(self.hold_out, str) or not self.hold_out:
            raise ArgumentError(f"hold_out is {self.hold_out!r}, expected the name of a cohort")
        if self.balanced is not None:
            check_size("balanced", self.balanced)
        _check_count("seed", self.seed, _MOST_SEED)
        # settings that do not apply are dropped, so that identical runs compare equal
        if self.norm not in _WITH_FILTER:
            object.__setattr__(self, "filter_size", None)
        else:
            self._check_filter_size()
            object.__setattr__(self, "filter_size", self.filter_size or PROTOCOL_FILTER)
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
        """Name of its folder."""
        size = "all" if self.balanced is None else f"at{self.balanced}"
        place = quote(self.hold_out, safe=" ")
        return "_".join([*self.arm._parts, place, size, f"seed{self.seed}"])

    @property
    def arm(self) -> Arm:
        """Everything except cohort and seed."""
        size = AUTO_SIZE if self.filter_size == AUTO else self.filter_size
        balanced = self.balanced or ALL
        return Arm(self.model, self.norm, size, self.norm_depth, balanced)  # type: ignore[arg-type]

    @property
    def label(self) -> str:
        """The label of its arm."""
        return self.arm.label

    def row(self) -> dict[str, Any]:
        """Return it as a row of a table of runs, where filter sizes are numbers."""
        row = {name: getattr(self, name) for name in (*ARM, "hold_out", "seed")}
        return row | {"filter_size": self.arm.filter_size, "arm": self.label}

    @property
    def is_adapted(self) -> bool:
        """Whether it is AdaBN: an evaluation of another run's network."""
        return isinstance(self.norm, str) and self.norm.startswith(ADABN)

    @property
    def layers(self) -> int | str:
        """Number of batch norms that AdaBN adapts, or "all"; 0 for other norms."""
        if not self.is_adapted:
            return 0
        number = self.norm.removeprefix(ADABN)
        if number == ALL:
            return ALL
        if not number.isdecimal() or str(int(number)) != number or number == "0":
            raise ArgumentError(
                f"norm is {self.norm!r}, expected {ADABN} and a number from 1 on, or {ADABN}all"
            )
        return int(number)

    @property
    def base(self) -> "Run":
        """The run whose network it uses: the "batch" run for AdaBN, else the run itself."""
        return dataclasses.replace(self, norm="batch") if self.is_adapted else self


@dataclass(frozen=True)
class Protocol(JsonRecord):
    """How every run of a grid is trained: with Adam, for at most ``max_epochs``.

    Parameters
    ----------
    batch_size : int
        Sequences per batch, in total over all devices.
    patience : int
        Early stopping: epochs without a lower validation loss until training stops.
    length, stride : int
        Epochs per sequence, and from one sequence to the next.
    validation_fraction : float
        Share of each cohort's subjects in the validation set.
    momentum : float
        α of PSDNorm's running barycenter, for all its layers.
    model_arguments : dict
        Further arguments of the model, such as ``{"depth": 4}``, or by model name,
        ``{"usleep": {"depth": 4}}``. ``norm_arguments`` apply only to PSDNorm.
    sequences_per_night : int, optional
        Sequences of a night in a training batch. By default 4 for networks with statistics by
        domain, whose domains are the nights; the others draw from all sequences alike.
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
    sequences_per_night: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "patience", "max_epochs", "length", "stride"):
            check_size(name, getattr(self, name))
        if self.sequences_per_night is not None:
            check_size("sequences_per_night", self.sequences_per_night)
            if self.sequences_per_night > self.batch_size:
                raise ArgumentError(
                    f"sequences_per_night is {self.sequences_per_night}, expected at most the "
                    f"{self.batch_size} of a batch"
                )
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
            sentence = f"model_arguments must be a dict that JSON holds: {error}"
            raise ArgumentError(sentence) from None
        _check_by_model(arguments)
        for own in (arguments, *(arguments.get(model, {}) for model in MODELS)):
            _check_norms(own)
            input_scale_setting(own.get("input_scale", 1.0))  # also before a night is simulated
        object.__setattr__(self, "model_arguments", arguments)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object, without a setting that older runs do not have."""
        document = super().to_json()
        if self.sequences_per_night is None:
            del document["sequences_per_night"]
        return document

    @property
    def windows(self) -> dict[str, Any]:
        """Loader arguments: how nights are split into windows, and these into batches."""
        return {"length": self.length, "stride": self.stride, "batch_size": self.batch_size}

    def arguments_of(self, model: str) -> dict[str, Any]:
        """Return the further arguments of a model.

        >>> Protocol(model_arguments={"depth": 4}).arguments_of("usleep")
        {'depth': 4}
        >>> Protocol(model_arguments={"usleep": {"depth": 4}}).arguments_of("cnn-transformer")
        {}
        """
        if self.model_arguments.keys() & set(MODELS):
            return dict(self.model_arguments.get(model, {}))
        return dict(self.model_arguments)


def norm_arguments_of(run: Run, protocol: Protocol) -> dict[str, Any]:
    """Return the further arguments of a run's PSDNorm layers; empty for other norms.

    >>> norm_arguments_of(Run(norm="psd-night"), Protocol())
    {'statistics': 'domain'}
    """
    if run.norm not in WITH_PSD_NORM:  # they are in the protocol, which the runs of a grid share
        return {}
    own = dict(protocol.arguments_of(run.model).get("norm_arguments") or {})
    if protocol.momentum != Protocol.momentum:  # by default, checkpoints stay unchanged
        own["momentum"] = protocol.momentum
    return own | VARIANTS.get(run.norm, {})


def is_by_night(run: Run, protocol: Protocol) -> bool:
    """Whether the statistics of a run's norms are those of whole nights."""
    return norm_arguments_of(run, protocol).get("statistics") == "domain"


def sequences_per_night_of(run: Run, protocol: Protocol) -> int:
    """Return how many sequences of a night follow each other in training.

    >>> [sequences_per_night_of(Run(norm=norm), Protocol()) for norm in ("psd", "psd-night")]
    [1, 4]
    """
    if protocol.sequences_per_night is not None:
        return protocol.sequences_per_night
    by_night = is_by_night(run, protocol)
    return min(_SEQUENCES_PER_NIGHT, protocol.batch_size) if by_night else 1


def filter_size_of(run: Run) -> int:
    """Return the numeric filter size of a run; it must not be None or "auto"."""
    assert run.filter_size not in (None, AUTO), f"{run.name} has no filter size"
    return int(run.filter_size)


def with_size(run: Run, filter_size: int | None) -> Run:
    """Return a run with "auto" replaced by a filter size; other runs are unchanged."""
    return dataclasses.replace(run, filter_size=filter_size) if run.filter_size == AUTO else run


def _check_by_model(arguments: Mapping[str, Any]) -> None:
    """Check that either all or none of the arguments are by model."""
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
    """Raise for arguments that no norm accepts, before any night is simulated."""
    check_schedule(arguments.get("filter_schedule", SCHEDULES[0]))
    if "momentum" in plain_norm_arguments(arguments.get("norm_arguments")):
        raise ArgumentError(
            "model_arguments has 'momentum' in norm_arguments, expected it as the protocol's own "
            "momentum, as a study's file or Protocol(momentum=…) has it"
        )


def _check_count(name: str, value: Any, most: int) -> None:
    if type(value) is not int or not 0 <= value <= most:
        raise ArgumentError(f"{name} is {value!r}, expected a whole number from 0 to {most}")
