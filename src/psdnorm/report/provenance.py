"""Where results come from: commands, versions, nights and cohorts."""

import json
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from psdnorm.experiments import Axes, ExperimentFolder, grid_of, paper_presets
from psdnorm.report.results import Results
from psdnorm.runtime import listed, read_json
from psdnorm.training import AUTO, CONFIG, DONE, KEEP, LENDER, TMA, Protocol, Run

Arm = tuple[str, str, int | str | None, int | None, int | None]
_PROTOCOL_OPTIONS = (
    *("max_epochs", "patience", "batch_size", "model_arguments", "sequences_per_night"),
)
_arm = attrgetter("model", "norm", "filter_size", "norm_depth", "balanced")
_OPTIONS = {
    "norms": "--norms",
    "models": "--models",
    "balanced": "--balanced",
    "filter_sizes": "--filter-size",
    "norm_depths": "--norm-depth",
}


@dataclass(frozen=True)
class Provenance:
    """Where results come from."""

    commands: list[str]  # for the whole grid; STORE stands for the folder of nights
    store: str  # which nights it held
    versions: list[str]  # of the software of the runs, each combination once
    tested: list[tuple[str, int, int]]  # held-out cohorts with their subjects and nights


def provenance(results: Results, runs_name: str) -> Provenance:
    """Read where results come from; ``runs_name`` is the folder as commands name it."""
    versions: Counter[str] = Counter()
    tested: dict[str, tuple[int, int]] = {}
    cohorts: set[str] = set()
    kept: dict[str, str] = {}
    for folder in results.runs["folder"]:
        config = read_json(folder / CONFIG)
        said = ", ".join(f"{name} {version}" for name, version in config["versions"].items())
        said += f", run in the study {config[LENDER]}" if LENDER in config else ""
        versions[said] += 1
        test = config["data"]["test"]
        tested[config["cell"]["hold_out"]] = (test["subjects"], test["nights"])
        cohorts.update(*(part["cohorts"] for part in config["data"].values()))
        kept[folder.name] = str(read_json(folder / DONE).get("keep", KEEP[0]))
    experiment = ExperimentFolder(results.path)
    runs = [entry.run for entry in experiment.entries()]
    protocol = results.config["protocol"]
    return Provenance(
        commands=lodo_commands(runs, protocol, runs_name, kept=kept, cohorts=cohorts),
        store=f"{experiment.settings()['nights']:,} nights of {listed(sorted(cohorts))}, "
        f"prepared with the recipe {results.recipe} ({results.config['recipe_sha256']:.12})",
        versions=[f"{said} ({n} runs)" for said, n in versions.items()],
        tested=[(cohort, *numbers) for cohort, numbers in sorted(tested.items())],
    )


def lodo_commands(
    runs: Sequence[Run],
    protocol: dict[str, Any],
    runs_name: str,
    store: str = "STORE",
    *,
    kept: Mapping[str, str] | None = None,
    cohorts: Collection[str] = (),
) -> list[str]:
    """Return commands that together make these runs.

    ``kept`` maps names of finished runs to what they kept; ``cohorts`` are all of the store:
    holding out all of them needs no option. ``psdnorm lodo`` counts seeds from 0: a remark names
    the seeds if some are skipped. It cannot name a cohort with a comma: the command is a comment.
    """
    further, of_protocol = _protocol_options(protocol)
    commands = []
    for keep, own in _by_keep(runs, kept or {}).items():
        end = [*further, *(["--keep", keep] if keep != KEEP[0] else []), "--out", runs_name]
        for block, hold_outs, remark in _blocks(own):
            named, unnamed = _hold_out(hold_outs, cohorts)
            words = shlex.join(["psdnorm", "lodo", store, *block, *named, *end])
            commands.append(f"{'# ' * bool(unnamed)}{words}{remark}{of_protocol}{unnamed}")
    return commands


def _by_keep(runs: Sequence[Run], kept: Mapping[str, str]) -> dict[str, list[Run]]:
    """Group runs by what they kept."""
    # BatchNorm always keeps its weights, and unfinished runs have kept nothing yet
    known = {run: kept[run.name] for run in runs if run.norm != "batch" and run.name in kept}
    usual = Counter(known.values()).most_common(1)[0][0] if known else KEEP[0]
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(known.get(run, usual), []).append(run)
    return groups


def _hold_out(hold_outs: Sequence[str], cohorts: Collection[str]) -> tuple[list[str], str]:
    """Return the option that names cohorts, and a remark on names with a comma."""
    unnamed = [repr(name) for name in hold_outs if "," in name]
    if unnamed and {*hold_outs} == {*cohorts}:
        return [], ""
    remark = "  # --hold-out cannot name {} because of the comma: only Python can"
    option = ["--hold-out", ",".join(hold_outs)]
    return option, remark.format(listed(unnamed)) if unnamed else ""


def _blocks(runs: Sequence[Run]) -> Iterable[tuple[list[str], tuple[str, ...], str]]:
    """Yield the options of a command without its cohorts, the cohorts, and a remark."""
    hold_outs = tuple(sorted({run.hold_out for run in runs}))
    n_seeds = max(run.seed for run in runs) + 1
    for preset in paper_presets().values():
        if preset.blocks and {*preset.runs(hold_outs, range(n_seeds))} == {*runs}:
            yield ["--preset", preset.name, "--seeds", str(n_seeds)], hold_outs, ""
            return
    for axes, seeds in _products(runs):
        only = ", ".join(map(str, seeds))
        remark = "" if len(seeds) == max(seeds) + 1 else f"  # only seeds {only} of these"
        options = []
        for name, option in _OPTIONS.items():
            values = ("all" if value is None else str(value) for value in getattr(axes, name))
            options += [option, ",".join(values)]
        yield [*options, "--seeds", str(max(seeds) + 1)], axes.hold_outs, remark


def _products(runs: Sequence[Run]) -> Iterable[tuple[Axes, tuple[int, ...]]]:
    """Yield axes whose products are the runs, as few as a simple search finds."""
    places: dict[Arm, dict[str, list[int]]] = {}
    for run in runs:
        places.setdefault(_arm(run), {}).setdefault(run.hold_out, []).append(run.seed)
    groups: dict[tuple, list[Arm]] = {}
    for arm, seeds_of in places.items():
        all_seeds = {hold_out: tuple(sorted(own)) for hold_out, own in seeds_of.items()}
        for seeds in dict.fromkeys(all_seeds.values()):
            hold_outs = tuple(sorted(name for name, own in all_seeds.items() if own == seeds))
            groups.setdefault((seeds, hold_outs), []).append(arm)
    for (seeds, hold_outs), arms in groups.items():
        for rectangle in _rectangles(arms):
            yield _axes(rectangle, hold_outs, seeds), seeds


def _rectangles(arms: list[Arm]) -> list[list[Arm]]:
    """Split arms into sets that are products of their axes."""
    if _is_product(arms):
        return [arms]
    for axis in (0, 4, 2, 3, 1):  # model, size, filter, depth, norm
        values = dict.fromkeys(arm[axis] for arm in arms)
        if len(values) > 1:
            parts = [[arm for arm in arms if arm[axis] == value] for value in values]
            return [rectangle for part in parts for rectangle in _rectangles(part)]
    return [arms]


def _is_product(arms: list[Arm]) -> bool:
    if any(arm[1] == TMA for arm in arms) and any(arm[2] == AUTO for arm in arms):
        return False  # TMA's filter size is never chosen
    runs = grid_of([_axes(arms, ("X",), (0,))])
    return {_arm(run) for run in runs} == {*arms}


def _axes(arms: list[Arm], hold_outs: tuple[str, ...], seeds: tuple[int, ...]) -> Axes:
    def axis(place: int, default: tuple) -> tuple:
        values = tuple(dict.fromkeys(arm[place] for arm in arms))
        return tuple(value for value in values if value is not None) or default

    sizes = tuple(dict.fromkeys(arm[4] for arm in arms))
    return Axes(axis(0, ()), axis(1, ()), axis(2, (5,)), axis(3, (3,)), hold_outs, sizes, seeds)


def _protocol_options(protocol: dict[str, Any]) -> tuple[list[str], str]:
    """Return the options of an unusual protocol, and a remark on settings without an option."""
    usual = Protocol().to_json()
    options, others = [], []
    for name, value in protocol.items():
        if value == usual.get(name):
            continue
        text = json.dumps(value) if isinstance(value, dict) else str(value)
        if name in _PROTOCOL_OPTIONS:
            options += [f"--{name.replace('_', '-')}", text]
        else:
            others.append(f"{name} {text}")
    remark = f"  # with {', '.join(others)}, which only Python can set" if others else ""
    return options, remark
