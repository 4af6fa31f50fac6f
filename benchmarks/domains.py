"""Compare norms on unseen domains: ``python -m benchmarks.domains FILE.npz --domain KEYS …``.

Any windows will do: ``FILE.npz`` holds ``x`` (n, C, T), ``y`` (n,), the names of the ``classes``,
and keys, one value per window. ``--domain sensor,rpm`` says which keys name a domain; ``--train
sensor=DE --test sensor=FE`` or ``--train subject=1-20 --test subject=21-30`` choose the source and
the target. Values are separated by commas; ranges of whole numbers include both ends; several keys
are several options. :mod:`benchmarks.windows` makes such files.

One small network is trained with each norm. ``domains.yaml`` holds everything that is the same for
all: network, optimiser, steps, batches, and how learning rates are chosen, which is on source
domains alone. Methods that see unlabelled windows of the target are listed apart from those that
see nothing of it. The score is the balanced accuracy of each target domain, averaged over them.
Intervals are percentiles of a bootstrap that resamples domains and, independently, seeds.

Each finished training is a line of ``trainings.jsonl`` in ``--out``: the same command resumes.

``--model module:function`` uses another network, ``function(n_channels, n_classes, n_times, norm)``
→ ``nn.Module`` of logits, where ``norm(num_features)`` returns a norm. ``norm(num_features,
depth=i)`` halves PSDNorm's filter size i times.
"""

import argparse
import csv
import fnmatch
import functools
import hashlib
import importlib
import inspect
import io
import json
import os
import platform
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import psdnorm
from psdnorm import PSDNorm, ops
from psdnorm.alignment import TMA
from psdnorm.errors import ArgumentError, PsdnormError, StoreError, os_errors_as
from psdnorm.runtime import (
    digest,
    errors,
    held,
    listed,
    plural,
    read_yaml,
    run_all,
    say,
    time_limit,
    track,
    written,
)

SETTINGS = Path(__file__).with_suffix(".yaml")
TRAININGS = "trainings.jsonl"
NOTHING, UNLABELLED = "nothing", "unlabelled windows"
CHUNK = 1024  # windows predicted at a time
CONDITIONS = {
    "cold": "none",
    "one": "one class",
    "two": "two classes",
    "all": "all classes",
    "shuffled": "streaming, shuffled",
    "sorted": "streaming, sorted by class",
}

Settings = Mapping[str, Any]
Scores = dict[str, float]  # by domain


# ─── the methods ───


@dataclass(frozen=True)
class Method:
    """A trained network and what is done with it at test time.

    ``network`` names what is trained: methods with the same one share it. ``adapts`` says whether
    its norms are set by the target's unlabelled windows.
    """

    name: str
    label: str
    network: str
    saw: str = UNLABELLED
    adapts: bool = False


def _psd_methods() -> Iterator[Method]:
    for statistics, saw in (("row", NOTHING), ("domain", UNLABELLED)):
        for filter_size in (1, 5, 17):
            for power in ("", "-unit"):
                for center in ("", "-centred") if statistics == "domain" else ("",):
                    name = f"psd-{statistics}-{filter_size}{power}{center}"
                    label = f"PSDNorm by {statistics}, f = {filter_size}"
                    label += ", unit power" if power else ""
                    label += ", centred by domain" if center else ""
                    yield Method(name, label, name, saw, adapts=statistics == "domain")


METHODS = (
    Method("batch", "BatchNorm", "batch", NOTHING),
    Method("layer", "LayerNorm", "layer", NOTHING),
    Method("instance", "InstanceNorm", "instance", NOTHING),
    Method("revin", "RevIN", "revin", NOTHING),
    Method("adabn", "BatchNorm + AdaBN", "batch", adapts=True),
    Method("tma", "TMA", "tma"),
    Method("tma-adabn", "TMA + AdaBN", "tma", adapts=True),
    Method("domain-batch", "BatchNorm by domain", "domain-batch", adapts=True),
    *_psd_methods(),
)


def is_psd(method: Method) -> bool:
    return method.name.startswith("psd-")


def is_by_domain(network: str) -> bool:
    return network.startswith("psd-domain-")


class DomainBatchNorm(nn.BatchNorm1d):
    """BatchNorm with separate statistics for each domain and one scale and shift.

    A training batch holds ``n_domains`` domains of equally many rows, one after the other. Running
    statistics are those of whole batches; AdaBN replaces them by those of a new domain.
    """

    def __init__(self, num_features: int, n_domains: int) -> None:
        super().__init__(num_features)
        self.n_domains = n_domains

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            variance, mean = torch.var_mean(x, dim=(0, 2))
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance, self.momentum)
        # a channel of each domain is a channel of its own
        apart = x.unflatten(0, (self.n_domains, -1)).transpose(0, 1)  # (n, D, C, T)
        affine = self.weight.repeat(self.n_domains), self.bias.repeat(self.n_domains)
        y = nn.functional.batch_norm(
            apart.flatten(1, 2), None, None, *affine, training=True, eps=self.eps
        )
        return y.view(apart.shape).transpose(0, 1).flatten(0, 1)


def norm_of(network: str, settings: Settings, n_domains: int) -> Callable[..., nn.Module]:
    """Return a function that builds the norm of a network from its number of channels."""

    def norm(num_features: int, depth: int = 0) -> nn.Module:
        if network == "layer":
            return nn.GroupNorm(1, num_features)
        if network == "instance":
            return nn.InstanceNorm1d(num_features, affine=True)
        if network == "domain-batch":
            return DomainBatchNorm(num_features, n_domains)
        if not network.startswith("psd-"):
            return nn.BatchNorm1d(num_features)
        _, statistics, filter_size, *options = network.split("-")
        return PSDNorm(
            num_features,
            max(1, int(filter_size) // 2**depth),
            **settings["psdnorm"],
            statistics=statistics,
            center="domain" if "centred" in options else "row",
            target_power="unit" if "unit" in options else "as-is",
        )

    return norm


def small_cnn(
    n_channels: int,
    n_classes: int,
    n_times: int,
    norm: Callable[..., nn.Module],
    *,
    channels: Sequence[int],
    kernel_size: int,
    pool: int,
) -> nn.Module:
    """Return a one-dimensional CNN with a norm after each convolution."""
    layers: list[nn.Module] = []
    for depth, (before, after) in enumerate(zip([n_channels, *channels], channels, strict=False)):
        convolution = nn.Conv1d(before, after, kernel_size, padding=kernel_size // 2, bias=False)
        layers += [convolution, norm(after, depth=depth), nn.ReLU(), nn.MaxPool1d(pool)]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(channels[-1], n_classes)
    )


# ─── the windows ───


@dataclass(frozen=True)
class Windows:
    """Windows with their classes and domains."""

    x: NDArray[np.floating]  # (n, C, T)
    y: NDArray[np.integer]  # (n,)
    domains: NDArray[np.str_]  # (n,)
    classes: tuple[str, ...]

    def where(self, chosen: NDArray[np.bool_]) -> "Windows":
        return Windows(self.x[chosen], self.y[chosen], self.domains[chosen], self.classes)

    def names(self) -> list[str]:
        """Return the domains in order of appearance."""
        return list(dict.fromkeys(self.domains.tolist()))


def read_windows(path: Path, keys: Sequence[str]) -> tuple[Windows, dict[str, NDArray]]:
    """Read a windows file; return the windows and all keys."""
    try:
        with os_errors_as(ArgumentError, path, "cannot be read"), np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, EOFError, AttributeError, TypeError) as error:
        if isinstance(error, PsdnormError):
            raise
        raise ArgumentError(f"{path} is not a file that numpy.savez makes of arrays") from error
    if missing := [name for name in ("x", "y", "classes") if name not in arrays]:
        raise ArgumentError(f"{path} has no array {listed(missing)}")
    x, y, classes = (arrays.pop(name) for name in ("x", "y", "classes"))
    if x.ndim != 3 or x.dtype.kind != "f" or 0 in x.shape:
        raise ArgumentError(
            f"{path}: x has shape {x.shape} and type {x.dtype}, expected floats, (n, channels, "
            "samples)"
        )
    if not np.isfinite(x).all():
        raise ArgumentError(f"{path}: x has values that are not finite")
    if y.shape != (len(x),) or y.dtype.kind not in "iu":
        raise ArgumentError(f"{path}: y must be {len(x)} whole numbers, found {y.dtype} {y.shape}")
    if y.min() < 0 or y.max() >= len(classes):
        raise ArgumentError(
            f"{path}: y goes from {y.min()} to {y.max()}, expected 0 to {len(classes) - 1}, as "
            f"classes has {plural(len(classes), 'name')}"
        )
    for name, values in arrays.items():
        if values.shape != (len(x),):
            raise ArgumentError(f"{path}: {name} has shape {values.shape}, expected ({len(x)},)")
    for key in keys:
        _check_key("--domain", key, arrays)
    names = zip(*(arrays[key].tolist() for key in keys), strict=True)
    domains = np.array([" ".join(map(str, values)) for values in names])
    return Windows(x, y.astype(np.int64), domains, tuple(map(str, classes))), arrays


def _check_key(option: str, key: str, arrays: Mapping[str, NDArray]) -> None:
    if key not in arrays:
        found = listed(list(arrays)) or "no key"
        raise ArgumentError(f"{option}: the file has no key {key!r}, found {found}")


def chosen_by(
    option: str, choices: Sequence[str], arrays: Mapping[str, NDArray], n: int
) -> NDArray[np.bool_]:
    """Return which of n windows are chosen by all ``KEY=VALUES``."""
    chosen = np.ones(n, bool)
    seen = set()
    for choice in choices:
        key, equals, values = choice.partition("=")
        if not equals or not values:
            raise ArgumentError(f"{option} {choice}: expected KEY=VALUES, as in subject=1-20,25")
        _check_key(option, key, arrays)
        if key in seen:
            raise ArgumentError(
                f"{option} has {key} twice, expected its values separated by commas"
            )
        seen.add(key)
        own = np.zeros(n, bool)
        for value in values.split(","):
            found = _equals(arrays[key], value)
            if not found.any():
                raise ArgumentError(f"{option} {choice}: no window has {key} {value}")
            own |= found
        chosen &= own
    if not chosen.any():
        raise ArgumentError(f"{option} {' '.join(choices)}: no window has all of these")
    return chosen


def _equals(values: NDArray, wanted: str) -> NDArray[np.bool_]:
    first, dash, last = wanted.partition("-")
    if values.dtype.kind in "iu" and dash and first.isdecimal() and last.isdecimal():
        return (values >= int(first)) & (values <= int(last))
    return values.astype(str) == wanted


def source_and_target(
    windows: Windows, arrays: Mapping[str, NDArray], train: Sequence[str], test: Sequence[str]
) -> tuple[Windows, Windows]:
    """Return the windows to train on and those to test on; check that they are separate."""
    n = len(windows.x)
    source = windows.where(chosen_by("--train", train, arrays, n))
    target = windows.where(chosen_by("--test", test, arrays, n))
    if common := sorted({*source.names()} & {*target.names()}):
        raise ArgumentError(
            f"{plural(len(common), 'domain')} in both --train and --test, such as {common[0]!r}: "
            "a target domain must be unseen"
        )
    if len(source.names()) < 2:
        raise ArgumentError(
            "--train has one domain, expected at least two, as one is held out to choose learning "
            "rates: name more keys with --domain"
        )
    if unseen := sorted({*target.y.tolist()} - {*source.y.tolist()}):
        raise ArgumentError(f"--train has no window of the class {windows.classes[unseen[0]]!r}")
    return source, target


def held_out_split(source: Windows, share: float) -> tuple[Windows, Windows]:
    """Hold out some source domains, at least one, always the same."""
    names = source.names()
    n = min(max(1, round(share * len(names))), len(names) - 1)
    held_out = [names[i] for i in np.random.default_rng(0).permutation(len(names))[:n]]
    is_held_out = np.isin(source.domains, held_out)
    return source.where(~is_held_out), source.where(is_held_out)


class Split:
    """Training and test windows on a device, scaled by one constant of the training windows."""

    def __init__(self, train: Windows, test: Windows, settings: Settings, device: str) -> None:
        self.train, self.test, self.device = train, test, device
        self.scale = np.float32(1 / train.x.std(dtype=np.float64))
        self.x_train = self.scale * train.x.astype(np.float32)
        self.x_test = self.scale * test.x.astype(np.float32)
        self.y_train = torch.from_numpy(train.y).to(device)
        self.members = {d: np.flatnonzero(test.domains == d) for d in test.names()}
        self._filter_size = min(settings["tma"]["filter_size"], train.x.shape[2])

    def training_inputs(self, is_aligned: bool) -> Tensor:
        return self._x_aligned if is_aligned else self._x

    def test_inputs(
        self, domain: str, wanted: NDArray[np.intp], unlabelled: NDArray[np.intp] | None
    ) -> Tensor:
        """Return windows of a domain, aligned by TMA to its unlabelled ones unless that is None."""
        x, psd = self._measured(domain)
        if unlabelled is None or not len(unlabelled):
            return x[wanted]
        # as in TMA.transform, which has no filter for other windows than those it measures
        psd = psd[unlabelled].mean(dim=0)
        psd = psd + self._tma.eps * psd.mean(dim=-1, keepdim=True)
        root = torch.from_numpy(self._tma.sqrt_barycenter_).to(psd.device)
        has_power = psd > 0
        gains = torch.where(has_power, psd, 1.0), torch.where(has_power, root, 0.0)
        taps = ops.monge_filter(*gains, self._filter_size)
        return ops.monge_map(ops.center(x[wanted].double()), taps).float()

    @functools.cache  # noqa: B019 - a process has one or two of these
    def _measured(self, domain: str) -> tuple[Tensor, Tensor]:
        """Return the windows of a domain, and the PSD of each."""
        x = torch.from_numpy(self.x_test[self.members[domain]]).to(self.device)
        return x, ops.welch_psd(ops.center(x.double()), self._filter_size)

    @functools.cached_property
    def _x(self) -> Tensor:
        return torch.from_numpy(self.x_train).to(self.device)

    @functools.cached_property
    def _x_aligned(self) -> Tensor:
        x = self._tma.transform(self.x_train, domains=self.train.domains)
        return torch.from_numpy(x).to(self.device)

    @functools.cached_property
    def _tma(self) -> TMA:
        return TMA(self._filter_size).fit(self.x_train, domains=self.train.domains)


# ─── one training ───


class Job(NamedTuple):
    """One training: on all of the source, or on part of it to choose a learning rate."""

    network: str
    learning_rate: float
    seed: int
    is_selection: bool


@dataclass(eq=False)
class Work:
    """Everything that a process needs for its trainings."""

    path: Path
    keys: tuple[str, ...]
    train: tuple[str, ...]
    test: tuple[str, ...]
    model: str | None
    settings: Settings
    device: str
    threads: int | None

    def __call__(self, job: Job) -> dict[str, Any]:
        """Train a network and test it with all of its methods."""
        if self.threads:
            torch.set_num_threads(self.threads)
        torch.backends.cudnn.deterministic = True
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            record = self._tested(job)
        large = any("the median PSD of a bin" in str(warning.message) for warning in caught)
        return record | {"eps_is_large": large}

    def _tested(self, job: Job) -> dict[str, Any]:
        began = time.perf_counter()
        split = self.selection if job.is_selection else self.final
        model = self.trained(job, split)
        trained = time.perf_counter()
        record = {**job._asdict(), "scores": {}, "losses": {}, "adaptation": {}}
        for method in (m for m in METHODS if m.network == job.network):
            tester = Tester(model, method, split)
            record["scores"][method.name], record["losses"][method.name] = tester.scores()
            if method.saw == UNLABELLED and not job.is_selection:
                record["adaptation"][method.name] = tester.adaptation(**self.settings["adaptation"])
        record["training_s"] = round(trained - began, 3)
        record["testing_s"] = round(time.perf_counter() - trained, 3)
        return record

    def source(self) -> Windows:
        return self._source_and_target[0]

    @functools.cached_property
    def _source_and_target(self) -> tuple[Windows, Windows]:
        windows, arrays = read_windows(self.path, self.keys)
        return source_and_target(windows, arrays, self.train, self.test)

    @functools.cached_property
    def selection(self) -> Split:
        """The split that learning rates are chosen on: the target has no part in it."""
        share = self.settings["selection"]["held_out"]
        return Split(*held_out_split(self.source(), share), self.settings, self.device)

    @functools.cached_property
    def final(self) -> Split:
        return Split(*self._source_and_target, self.settings, self.device)

    def trained(self, job: Job, split: Split) -> nn.Module:
        """Train a network by the settings, for a fixed number of steps."""
        settings = self.settings
        steps, warm_up = settings["steps"], settings["optimiser"]["warm_up_steps"]
        batches = draw_batches(split.train.domains, steps, **settings["batch"], seed=job.seed)
        n_domains = batches.shape[1]
        torch.manual_seed(job.seed)
        model = self.build(job.network, split, n_domains).to(self.device).train()
        optimiser = torch.optim.AdamW(
            model.parameters(), weight_decay=settings["optimiser"]["weight_decay"], fused=True
        )
        x, y = split.training_inputs(job.network == "tma"), split.y_train
        rows = torch.from_numpy(batches.reshape(steps, -1)).to(self.device)
        # every batch holds its domains in the same places
        ids = np.repeat(np.arange(n_domains), batches.shape[2])
        with psdnorm.domains(ids) if is_by_domain(job.network) else nullcontext():
            for step in range(steps):
                warm = min(1.0, (step + 1) / (warm_up + 1))
                cosine = 0.5 * (1 + np.cos(np.pi * step / steps))
                for group in optimiser.param_groups:
                    group["lr"] = job.learning_rate * warm * cosine
                loss = nn.functional.cross_entropy(model(x[rows[step]]), y[rows[step]])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        return model.eval()

    def build(self, network: str, split: Split, n_domains: int) -> nn.Module:
        """Build an untrained network."""
        if self.model is None:
            function: Callable = functools.partial(small_cnn, **self.settings["network"])
        else:
            function = model_function(self.model)
        _, n_channels, n_times = split.train.x.shape
        norm = norm_of(network, self.settings, n_domains)
        model = function(n_channels, len(split.train.classes), n_times, norm)
        if network == "revin":
            return nn.Sequential(nn.InstanceNorm1d(n_channels, affine=True), model)
        return model


def draw_batches(
    domains: NDArray[np.str_], steps: int, n_domains: int, n_windows: int, seed: int
) -> NDArray[np.int64]:
    """Draw the windows of each step, (steps, D, n), without repetition where there are enough."""
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(domains == name) for name in dict.fromkeys(domains.tolist())]
    n_domains = min(n_domains, len(members))
    return np.array(
        [
            [
                rng.choice(members[d], n_windows, replace=len(members[d]) < n_windows)
                for d in rng.choice(len(members), n_domains, replace=False)
            ]
            for _ in range(steps)
        ]
    )


def model_function(name: str) -> Callable[..., nn.Module]:
    """Return the function ``module:function``."""
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(
            f"--model {name}: expected module:function, found that {error}"
        ) from error


class Tester:
    """A trained network on the test domains, by one method."""

    def __init__(self, model: nn.Module, method: Method, split: Split) -> None:
        self.model, self.method, self.split = model, method, split

    def scores(self) -> tuple[Scores, Scores]:
        """Return balanced accuracies and losses, adapted to all windows of each domain."""
        scores, losses = {}, {}
        for domain, members in self.split.members.items():
            y = self.split.test.y[members]
            logits = self.logits(domain, np.arange(len(y)))
            loss = nn.functional.cross_entropy(logits, torch.from_numpy(y).to(logits.device))
            scores[domain] = balanced_accuracy(y, logits.argmax(dim=1).cpu().numpy())
            losses[domain] = loss.nan_to_num(1e9, 1e9, 1e9).item()
        return scores, losses

    def adaptation(self, windows: int, draws: int, arriving: int) -> dict[str, Scores]:
        """Return balanced accuracies of all windows by what there was to adapt to."""
        scores: dict[str, Scores] = {condition: {} for condition in CONDITIONS}
        for place, (domain, members) in enumerate(self.split.members.items()):
            y = self.split.test.y[members]
            found: dict[str, list[float]] = {condition: [] for condition in CONDITIONS}
            for condition, unlabelled in unlabelled_sets(y, windows, draws, place):
                predicted = self.logits(domain, unlabelled).argmax(dim=1).cpu().numpy()
                found[condition].append(balanced_accuracy(y, predicted))
            for condition, order in arrivals(y, place):
                predicted = self.streamed(domain, order, arriving)
                found[condition].append(balanced_accuracy(y, predicted))
            for condition, values in found.items():
                scores[condition][domain] = float(np.mean(values))
        return scores

    def logits(self, domain: str, unlabelled: NDArray[np.intp]) -> Tensor:
        """Return the logits of all windows of a domain, adapted to some of them."""
        x = self._inputs(domain, np.arange(len(self.split.members[domain])), unlabelled)
        batches = x[unlabelled].split(CHUNK) if len(unlabelled) else []
        with self._adapted(batches):
            return self._predicted(x)

    def streamed(self, domain: str, order: NDArray[np.intp], arriving: int) -> NDArray[np.intp]:
        """Predict windows as they arrive, a few at a time, adapted to all that have arrived."""
        predicted = np.empty(len(order), np.intp)
        with self._adapted([], streaming=True):
            for start in range(0, len(order), arriving):
                end = start + arriving
                x = self._inputs(domain, order[start:end], order[:end])
                predicted[order[start:end]] = self._predicted(x).argmax(dim=1).cpu().numpy()
        return predicted

    def _inputs(
        self, domain: str, wanted: NDArray[np.intp], unlabelled: NDArray[np.intp]
    ) -> Tensor:
        is_aligned = self.method.network == "tma"
        return self.split.test_inputs(domain, wanted, unlabelled if is_aligned else None)

    def _adapted(self, batches: Sequence[Tensor], **options: bool) -> AbstractContextManager:
        if not self.method.adapts:
            return nullcontext()
        # AdaBN is the same with batch norms
        return psdnorm.adapt(
            self.model, list(batches), batch_norms=not is_psd(self.method), **options
        )

    @torch.no_grad()
    def _predicted(self, x: Tensor) -> Tensor:
        return torch.cat([self.model(part) for part in x.split(CHUNK)])


def balanced_accuracy(true: NDArray, predicted: NDArray) -> float:
    """Return the mean recall over the classes that occur."""
    return float(np.mean([(predicted[true == c] == c).mean() for c in np.unique(true)]))


def unlabelled_sets(
    y: NDArray, windows: int, draws: int, seed: int
) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Yield sets of windows to adapt to: none, and as many of one class, of two and of all."""
    yield "cold", np.arange(0)
    rng = np.random.default_rng(seed)
    classes = np.unique(y)
    for condition, n_classes in (("one", 1), ("two", 2), ("all", len(classes))):
        for _ in range(draws):
            chosen = rng.choice(classes, min(n_classes, len(classes)), replace=False)
            candidates = np.flatnonzero(np.isin(y, chosen))
            n = min(windows, len(candidates))
            yield condition, np.sort(rng.choice(candidates, n, replace=False))


def arrivals(y: NDArray, seed: int) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Yield the orders in which windows arrive."""
    rng = np.random.default_rng(seed)
    yield "shuffled", rng.permutation(len(y))
    rank = rng.permutation(y.max() + 1)
    yield "sorted", np.argsort(rank[y], kind="stable")


# ─── all trainings ───


class Trainings:
    """Finished trainings: a file with a line of JSON for each."""

    def __init__(self, path: Path, work: Work) -> None:
        self._path = path
        fixed = ("network", "psdnorm", "tma", "optimiser", "steps", "batch", "adaptation")
        self._about = {
            "file": hashlib.sha256(work.path.read_bytes()).hexdigest(),
            "domain": work.keys,
            "train": work.train,
            "test": work.test,
            "model": work.model,
            "settings": {name: work.settings[name] for name in fixed},
            "held_out": work.settings["selection"]["held_out"],
        }
        if work.model is not None:
            source = inspect.getsource(inspect.getmodule(model_function(work.model)))
            self._about["model_source"] = hashlib.sha256(source.encode()).hexdigest()
        self._records: dict[str, dict[str, Any]] = {}
        with os_errors_as(StoreError, path, "cannot be read"):
            content = path.read_bytes() if path.exists() else b""
            whole = content[: content.rfind(b"\n") + 1]
            if whole != content:  # a process was killed while it wrote the last line
                os.truncate(path, len(whole))
        for line in whole.splitlines():
            record = json.loads(line)
            self._records[record["digest"]] = record

    def get(self, job: Job) -> dict[str, Any] | None:
        return self._records.get(self._digest(job))

    def add(self, record: dict[str, Any]) -> None:
        job = Job(*(record[name] for name in Job._fields))
        record = {"digest": self._digest(job), **record}
        with os_errors_as(StoreError, self._path, "cannot be written"), open(self._path, "a") as f:
            f.write(json.dumps(record) + "\n")
        self._records[record["digest"]] = record

    def run(self, work: Work, jobs: Iterable[Job], processes: int, what: str) -> list[Job]:
        """Run what is not finished; return what failed because its process died twice."""
        wanted = [job for job in dict.fromkeys(jobs) if self.get(job) is None]
        lost: list[Job] = []
        results = run_all(work, wanted, jobs=processes, lost=lambda job, _: lost.append(job))
        for record in track(results, len(wanted), what):
            if record is not None:
                self.add(record)
        return lost

    def _digest(self, job: Job) -> str:
        return digest({**self._about, **job._asdict()})


class Chosen(NamedTuple):
    """The learning rate of a method, with its mean score and loss on held-out source domains."""

    learning_rate: float
    score: float
    loss: float


def selection_jobs(methods: Sequence[Method], settings: Settings) -> Iterator[Job]:
    for seed in range(settings["selection"]["seeds"]):
        for network in dict.fromkeys(method.network for method in methods):
            for rate in settings["selection"]["learning_rates"]:
                yield Job(network, rate, seed, True)


def choose(method: Method, trainings: Trainings, settings: Settings) -> Chosen | None:
    """Choose a learning rate by held-out source domains; None if a training is missing."""
    found = []
    for rate in settings["selection"]["learning_rates"]:
        seeds = range(settings["selection"]["seeds"])
        records = [trainings.get(Job(method.network, rate, seed, True)) for seed in seeds]
        if None in records:
            return None
        score, loss = (
            float(np.mean([list(record[what][method.name].values()) for record in records]))
            for what in ("scores", "losses")
        )
        found.append(Chosen(rate, score, loss))
    return _best(found)


def _best(found: Sequence[Chosen]) -> Chosen:
    return max(found, key=lambda each: (round(each.score, 4), -each.loss))


def final_jobs(methods: Mapping[Method, Chosen], settings: Settings) -> Iterator[Job]:
    for seed in range(settings["seeds"]):
        for method, chosen in methods.items():
            yield Job(method.network, chosen.learning_rate, seed, False)


# ─── the tables ───


@dataclass(frozen=True)
class Interval:
    """A mean and its bootstrap interval."""

    mean: float
    low: float
    high: float

    def text(self, sign: str = "") -> str:
        numbers = (f"{100 * value:{sign}.1f}" for value in (self.mean, self.low, self.high))
        mean, low, high = (number.replace("-", "−") for number in numbers)
        return f"{mean} ({low} to {high})"


@dataclass(frozen=True)
class Row:
    """A method in the first table."""

    method: Method
    chosen: Chosen
    score: Interval
    over_batch: Interval | None
    best_other: str
    over_best: Interval | None
    is_source_choice: bool  # the variant of PSDNorm, by row or by domain, that source domains chose


@dataclass(frozen=True)
class Results:
    """Scores of all methods whose trainings are finished, (domains, seeds) each."""

    methods: dict[Method, Chosen]
    scores: dict[Method, NDArray[np.float64]]
    adaptation: dict[Method, dict[str, float]]
    domains: list[str]
    eps_is_large: list[Method]  # in some layer of some seed

    def notes(self) -> list[str]:
        """Return what a reader of the first table must know."""
        n = len(self.domains)
        found = [*NOTES, f"Intervals from {n} domains are rough."] if n < 10 else [*NOTES]
        if self.eps_is_large:
            names = listed([method.label for method in self.eps_is_large])
            found.append(
                f"eps was more than 1 % of the median PSD of a bin in a layer of: {names}."
            )
        return found

    def rows(self, draws: int, confidence: float) -> list[Row]:
        """Return the methods that saw nothing, then those that saw unlabelled windows, by score."""
        if not self.scores:
            return []
        drawn = self._drawn(draws)
        tails = 50 * (1 - confidence), 50 * (1 + confidence)

        def interval(mean: float, values: NDArray) -> Interval:
            low, high = np.percentile(values, tails)
            return Interval(float(mean), float(low), float(high))

        means = {method: scores.mean() for method, scores in self.scores.items()}
        batch = next((method for method in means if method.name == "batch"), None)
        choices = [self._source_choice("psd-row-"), self._source_choice("psd-domain-")]
        rows = []
        for method in sorted(means, key=lambda m: (m.saw != NOTHING, -means[m])):
            over_batch, best, over_best = None, None, None
            if batch is not None and method != batch:
                over_batch = interval(means[method] - means[batch], drawn[method] - drawn[batch])
            # variants of PSDNorm are compared with the best other method, not with each other
            others = [
                other
                for other in means
                if other.saw == method.saw
                and other != method
                and not (is_psd(method) and is_psd(other))
            ]
            if others:
                best = max(others, key=lambda other: means[other])
                # another method might have been best, so the best one is chosen anew in each draw
                bar = np.max([drawn[other] for other in others], axis=0)
                over_best = interval(means[method] - means[best], drawn[method] - bar)
            score, label = interval(means[method], drawn[method]), best.label if best else ""
            choice = self.methods[method]
            is_chosen = method in choices
            rows.append(Row(method, choice, score, over_batch, label, over_best, is_chosen))
        return rows

    def _source_choice(self, family: str) -> Method | None:
        found = {m: c for m, c in self.methods.items() if m.name.startswith(family)}
        found = {m: c for m, c in found.items() if m in self.scores}
        if len(found) < 2:
            return None
        best = _best(list(found.values()))
        return next(method for method, chosen in found.items() if chosen == best)

    def _drawn(self, draws: int) -> dict[Method, NDArray[np.float64]]:
        """Return the mean score in each draw of domains and, independently, of seeds."""
        n_domains, n_seeds = next(iter(self.scores.values())).shape
        rng = np.random.default_rng(0)
        domains = rng.multinomial(n_domains, np.full(n_domains, 1 / n_domains), draws) / n_domains
        seeds = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), draws) / n_seeds
        return {
            method: np.einsum("bd,ds,bs->b", domains, scores, seeds, optimize=True)
            for method, scores in self.scores.items()
        }


def collect(
    methods: Mapping[Method, Chosen], trainings: Trainings, settings: Settings, domains: list[str]
) -> Results:
    """Collect the scores of the methods of which all seeds are finished."""
    scores, adaptation, eps_is_large = {}, {}, []
    for method, chosen in methods.items():
        jobs = [
            Job(method.network, chosen.learning_rate, seed, False)
            for seed in range(settings["seeds"])
        ]
        records = [trainings.get(job) for job in jobs]
        if None in records:
            continue
        scores[method] = np.array(
            [[record["scores"][method.name][domain] for record in records] for domain in domains]
        )
        if any(record["eps_is_large"] for record in records):
            eps_is_large.append(method)
        if method.saw == UNLABELLED:
            found = [record["adaptation"][method.name] for record in records]
            adaptation[method] = {
                condition: float(np.mean([list(each[condition].values()) for each in found]))
                for condition in CONDITIONS
            }
    return Results(dict(methods), scores, adaptation, domains, eps_is_large)


HEAD = (
    *("method", "saw of the target", "balanced accuracy", "over BatchNorm"),
    *("over the best other", "learning rate", "source"),
)
SOURCE_HEAD = ("method", "learning rate", "balanced accuracy on held-out source", "loss")
NOTES = (
    "Balanced accuracy in percent, averaged over target domains and seeds, and 95 % intervals from "
    "a bootstrap of domains and, independently, of seeds.",
    "The best other method is one that saw as much of the target; variants of PSDNorm are not "
    "compared with each other.",
    "Source: balanced accuracy on held-out source domains, by which the learning rate was chosen. "
    "A star marks the variant of PSDNorm that the same rule chooses.",
)
ADAPTATION_NOTE = (
    "Balanced accuracy of all windows of a target domain, in percent, by the unlabelled windows "
    "that there were to adapt to. Streaming: windows are predicted as they arrive, adapted to "
    "those that have arrived."
)


def main_table(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [
            row.method.label + " ★" * row.is_source_choice,
            row.method.saw,
            row.score.text(),
            row.over_batch.text("+") if row.over_batch else "",
            row.over_best.text("+") if row.over_best else "",
            f"{row.chosen.learning_rate:g}",
            f"{100 * row.chosen.score:.1f}",
        ]
        for row in rows
    ]


def source_table(methods: Mapping[Method, Chosen]) -> list[list[str]]:
    return [
        [method.label, f"{rate:g}", f"{100 * score:.1f}", f"{loss:.3f}"]
        for method, (rate, score, loss) in methods.items()
    ]


def adaptation_table(rows: Sequence[Row], results: Results) -> list[list[str]]:
    return [
        [
            row.method.label,
            *(f"{100 * results.adaptation[row.method][c]:.1f}" for c in CONDITIONS),
            f"{100 * row.score.mean:.1f}",
        ]
        for row in rows
        if row.method in results.adaptation
    ]


def adaptation_head(settings: Settings) -> list[str]:
    n = settings["adaptation"]["windows"]
    names = [f"{n} of {text}" if key in ("one", "two", "all") else text
             for key, text in CONDITIONS.items()]  # fmt: skip
    return ["method", *names, "all windows"]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def write_tables(out: Path, results: Results, about: Sequence[str], settings: Settings) -> None:
    """Write both tables as CSV, one Markdown file and one page."""
    rows = results.rows(**settings["bootstrap"])
    _write_csv(out / "results.csv", (_csv_row(row, results) for row in rows))
    _write_csv(out / "scores.csv", _score_rows(results))
    _write_csv(
        out / "adaptation.csv",
        (
            {"method": method.name, "label": method.label, "condition": condition, "score": score}
            for method, found in results.adaptation.items()
            for condition, score in found.items()
        ),
    )
    main, adapted = main_table(rows), adaptation_table(rows, results)
    head = adaptation_head(settings)
    text = (
        "\n\n".join(about)
        + "\n\n"
        + markdown(HEAD, main)
        + "\n"
        + "\n\n".join(results.notes())
        + "\n"
    )
    if adapted:
        text += f"\n{markdown(head, adapted)}\n{ADAPTATION_NOTE}\n"
    with written(out / "results.md") as file:
        file.write(text.encode())
    from psdnorm.present import Page  # late, as it needs jinja2

    page = Page("Norms on unseen domains")
    for sentence in about:
        page.text(sentence)
    for saw in (NOTHING, UNLABELLED):
        own = [row for row in main if row[1] == saw]
        if own:
            page.heading(f"Methods that saw {saw} of the target")
            page.table(f"Methods that saw {saw} of the target", HEAD, own, unseen=True)
    for sentence in results.notes():
        page.text(sentence, "note")
    if adapted:
        page.heading("What there is to adapt to").table(ADAPTATION_NOTE, head, adapted)
    page.heading("What was the same for all").command(json.dumps(settings, indent=2))
    page.write(out / "index.html")


def _csv_row(row: Row, results: Results) -> dict[str, Any]:
    found = {"method": row.method.name, "label": row.method.label, "saw": row.method.saw}
    for name, interval in (
        ("score", row.score),
        ("over_batch", row.over_batch),
        ("over_best_other", row.over_best),
    ):
        values = asdict(interval) if interval else dict.fromkeys(("mean", "low", "high"), "")
        found |= {name: values["mean"]}
        found |= {f"{name}_{end}": values[end] for end in ("low", "high")}
    n_domains, n_seeds = results.scores[row.method].shape
    return found | {
        "best_other": row.best_other,
        "learning_rate": row.chosen.learning_rate,
        "source_score": row.chosen.score,
        "source_loss": row.chosen.loss,
        "chosen_on_source": int(row.is_source_choice),
        "domains": n_domains,
        "seeds": n_seeds,
    }


def _score_rows(results: Results) -> Iterator[dict[str, Any]]:
    for method, scores in results.scores.items():
        for domain, own in zip(results.domains, scores, strict=True):
            for seed, score in enumerate(own):
                yield {"method": method.name, "domain": domain, "seed": seed, "score": score}


def _write_csv(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    text = io.StringIO()
    table = None
    for row in rows:
        if table is None:
            table = csv.DictWriter(text, list(row))
            table.writeheader()
        table.writerow(row)
    with written(path) as file:
        file.write(text.getvalue().encode())


# ─── the command ───


def read_settings(path: Path) -> dict[str, Any]:
    """Read settings; they must have the keys of those that are shipped, and no others."""
    settings = read_yaml(path)
    _check_keys(path, read_yaml(SETTINGS), settings)
    return settings


def _check_keys(path: Path, expected: Any, found: Any, where: str = "") -> None:
    if not isinstance(expected, dict):
        return
    keys = list(found) if isinstance(found, dict) else []
    if sorted(keys) != sorted(expected):
        raise ArgumentError(
            f"{path}{where} has {listed(keys) or 'no keys'}, expected {listed(list(expected))}"
        )
    for key, value in expected.items():
        _check_keys(path, value, found[key], f": {key}")


def chosen_methods(patterns: str | None) -> list[Method]:
    """Return the methods whose names match one of the patterns, all of them without any."""
    if patterns is None:
        return list(METHODS)
    chosen = set()
    for pattern in patterns.split(","):
        found = {m for m in METHODS if fnmatch.fnmatchcase(m.name, pattern)}
        if not found:
            names = listed([method.name for method in METHODS])
            raise ArgumentError(f"--only {pattern}: expected one of {names}, or a pattern")
        chosen |= found
    return [method for method in METHODS if method in chosen]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="windows, as benchmarks.windows makes them")
    parser.add_argument("--domain", required=True, help="keys that name a domain: sensor,rpm")
    values = "KEY=VALUES, as in subject=1-20,25; may be given for several keys"
    parser.add_argument("--train", required=True, action="append", help=values)
    parser.add_argument("--test", required=True, action="append", help=values)
    parser.add_argument("--out", required=True, type=Path, help="folder for trainings and tables")
    parser.add_argument("--model", help="another network, as module:function")
    parser.add_argument("--only", help="methods or patterns, separated by commas: batch,psd-*")
    parser.add_argument("--settings", type=Path, default=SETTINGS)
    parser.add_argument(
        "--source-only",
        action="store_true",
        help="choose learning rates, print the scores on held-out source domains, and stop",
    )
    parser.add_argument("--note", action="append", default=[], help="a caveat of the data")
    devices = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--device", choices=devices, default=devices[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes, which share a GPU")
    parser.add_argument("--minutes", type=float, help="stop after this time; may be resumed")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Train what is missing and write the tables; 1 if a training failed."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        settings = read_settings(options.settings)
        methods = chosen_methods(options.only)
        keys = tuple(options.domain.split(","))
        threads = max(1, (os.cpu_count() or 1) // options.jobs) if options.jobs > 1 else None
        work = Work(
            options.file, keys, tuple(options.train), tuple(options.test), options.model,
            settings, options.device, threads,
        )  # fmt: skip
        windows, arrays = read_windows(options.file, keys)
        source, target = source_and_target(windows, arrays, work.train, work.test)
        if options.jobs < 1:
            raise ArgumentError(f"--jobs is {options.jobs}, expected at least 1")
        with os_errors_as(StoreError, options.out, "cannot be made"):
            options.out.mkdir(parents=True, exist_ok=True)
        trainings = Trainings(options.out / TRAININGS, work)
    except PsdnormError as error:
        parser.error(str(error))
    about = [*_about(options, source, target), *options.note]
    for sentence in about:
        say(errors, sentence)
    with held(options.out) as mine:
        if not mine:
            parser.error(f"--out {options.out} is in use by another process")
        try:
            with time_limit(options.minutes):
                return _run(work, trainings, methods, options, target, about)
        except KeyboardInterrupt:
            say(errors, "interrupted; run the same command again to resume")
            return 130
        except PsdnormError as error:
            say(errors, str(error))
            return 1


def _run(
    work: Work,
    trainings: Trainings,
    methods: Sequence[Method],
    options: argparse.Namespace,
    target: Windows,
    about: Sequence[str],
) -> int:
    settings = work.settings
    jobs = selection_jobs(methods, settings)
    lost = trainings.run(work, jobs, options.jobs, "choosing learning rates")
    found = {method: choose(method, trainings, settings) for method in methods}
    chosen = {method: choice for method, choice in found.items() if choice is not None}
    if options.source_only:
        print(markdown(SOURCE_HEAD, source_table(chosen)))
        return _report(lost)
    lost += trainings.run(work, final_jobs(chosen, settings), options.jobs, "training")
    results = collect(chosen, trainings, settings, target.names())
    write_tables(options.out, results, about, settings)
    print((options.out / "results.md").read_text())
    return _report(lost)


def _report(lost: Sequence[Job]) -> int:
    for job in lost:
        say(errors, f"{job.network}, seed {job.seed}: its process died twice; run again to retry")
    return 1 if lost else 0


def _about(options: argparse.Namespace, source: Windows, target: Windows) -> list[str]:
    """Return sentences on the command, the data and the machine."""
    command = ["python -m benchmarks.domains", shlex.quote(options.file.name), "--domain"]
    command += [options.domain]
    for name in ("train", "test"):
        for choice in getattr(options, name):
            command += [f"--{name}", shlex.quote(choice)]
    _, n_channels, n_times = source.x.shape
    parts = (
        f"{plural(len(part.x), 'window')} of {plural(len(part.names()), name)}"
        for part, name in ((source, "source domain"), (target, "target domain"))
    )
    device = torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
    model = f" Network: {options.model}." if options.model else ""
    return [
        f"{' '.join(command)}, {time.strftime('%Y-%m-%d')}, {device}, torch {torch.__version__}.",
        f"{listed(list(parts))}; {plural(n_channels, 'channel')}, {plural(n_times, 'sample')}, "
        f"{plural(len(source.classes), 'class', 'classes')}.{model}",
    ]


if __name__ == "__main__":
    sys.exit(main())
