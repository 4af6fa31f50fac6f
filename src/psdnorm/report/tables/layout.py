"""How tables of scores are filled: rows, notes, the paper's numbers below ours."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from psdnorm.constants import SIMULATED_NIGHTS, STAGES
from psdnorm.evaluation import aggregate
from psdnorm.report.contest import MEANS
from psdnorm.report.paper import misprints, paper_table
from psdnorm.report.results import Results, model_place, norm_place
from psdnorm.report.tables.table import OURS, PAPER, Table, TableCell, figure, with_best
from psdnorm.runtime import listed, plural, verb
from psdnorm.training import ALL, ARM, AUTO, AUTO_SIZE, Arm, setting_name

Setting = tuple[str, int | str]  # a model, and balanced@N or "all"


class Scores:
    """Every metric of every arm, per dataset and over datasets."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self._seeds: dict[tuple[Arm, str], set[int]] = {}
        for row in results.runs.to_dict("records"):
            place = Arm.of_row(row), str(row["hold_out"])
            self._seeds.setdefault(place, set()).add(int(row["seed"]))
        self.arms = sorted({arm for arm, _ in self._seeds}, key=in_order)
        table = aggregate(results.scores, by=["arm"])
        table[["mean", "std"]] *= 100
        self._rows = {(row.arm, row.metric, row.dataset): row for row in table.itertuples()}
        self.missing: dict[tuple[Arm, str], set[int]] = {}  # requested seeds without a result
        for run in results.missing:
            self.missing.setdefault((run.arm, run.hold_out), set()).add(run.seed)
        people = results.subjects[["cohort", "subject", "missing_stages"]]
        misses_one = people.groupby(["cohort", "subject"])["missing_stages"].max().gt(0)
        # by cohort: the number of subjects, and of subjects without all stages
        self.people = misses_one.groupby("cohort").agg(subjects="size", incomplete="sum")

    def datasets(self, arm: Arm) -> set[str]:
        """Return the datasets on which an arm has a result."""
        return {dataset for other, dataset in self._seeds if other == arm}

    def datasets_of(self, arms: Iterable[Arm]) -> tuple[str, ...]:
        """Return the datasets on which at least one of the arms has a result, sorted."""
        return tuple(sorted(set().union(*map(self.datasets, arms))))

    def settings(self, arms: Iterable[Arm]) -> list[Setting]:
        """Return the settings of those arms that have a result, in the order of the paper."""
        return [*dict.fromkeys((arm.model, arm.balanced) for arm in sorted(arms, key=in_order))]

    def seeds(self, arm: Arm, dataset: str) -> set[int]:
        """Return the seeds of an arm's results on a dataset."""
        return self._seeds.get((arm, dataset), set())

    def score(self, arm: Arm, metric: str, dataset: str, over: Iterable[str]) -> Any:
        """Return mean and std in percent, seeds and subjects; for `MEANS`, only if complete."""
        found = self._rows.get((arm.label, metric, dataset))
        if found is None or found.mean != found.mean:
            return None
        if dataset in MEANS and any(self.score(arm, metric, name, ()) is None for name in over):
            return None
        return found


def in_order(arm: Arm) -> tuple:
    """Return the sort key of an arm: norms in the order of the paper, all subjects first."""
    size = (0, 0) if arm.balanced == ALL else (1, -int(arm.balanced))
    places = model_place(arm.model), size, norm_place(arm.norm)
    return *places, arm.filter_size or 0, arm.norm_depth or 0


PROTOCOL = (
    "Norms have the filter size (f = 5) and depth (first 3 blocks) of the protocol where they have "
    "any; other sizes and depths are in the tables of filter sizes and depths."
)
SPREAD = "± is the standard deviation over seeds (ddof = 1)."
BOLD = "The best of a row is in bold; numbers that are printed alike are equally good."
NO_BOLD = "nothing is in bold, as the numbers are over different seeds."
METRIC_NAMES = {
    "balanced_accuracy": "Balanced accuracy",
    "accuracy": "Accuracy",
    "macro_f1": "Macro F1",
    "weighted_f1": "Weighted F1",
    "cohen_kappa": "Cohen's κ × 100",
    "calibration_error": "Expected calibration error",
    **{f"f1_{stage}": f"F1 of {stage}" for stage in STAGES},
}


def block_notes(
    heading: str, arms: Sequence[Arm], datasets: Sequence[str], metrics: list[str], scores: Scores
) -> list[str]:
    """Return a note on each arm, dataset, seed and metric that is missing from a block."""
    several = len({arm.balanced for arm in arms}) > 1
    names = {arm: arm.named() + (f" @{arm.balanced}" if several else "") for arm in arms}
    places = [(arm, dataset) for arm in arms for dataset in datasets]
    # seeds that any arm has on any dataset, and requested seeds
    seeds = set().union(*(scores.seeds(*p) | scores.missing.get(p, set()) for p in places))
    said: dict[str, list[str]] = {}
    for arm in arms:
        if not scores.datasets(arm):
            said.setdefault("no result", []).append(names[arm])
            continue
        absent = _absent_seeds(arm, datasets, seeds, scores)
        for sentence in (*absent, *_undefined(arm, datasets, metrics, scores)):
            said.setdefault(sentence, []).append(names[arm])
    notes = [f"{listed(who)}: {sentence}" for sentence, who in said.items()]
    asked = {name for arm, name in scores.missing if arm in names}
    without = sorted(asked - {*datasets})
    if without:
        notes.append(
            f"{listed(without)}: requested, but without any result, so means are over "
            f"{plural(len(datasets), 'dataset')}"
        )
    if not any(len(scores.seeds(*place)) > 1 for place in places):
        notes.append("only one seed, so there is no ±")
    return [f"{heading}; {note}." for note in notes]


def chosen_notes(heading: str, arms: Sequence[Arm], scores: Scores) -> list[str]:
    """Return a note on the filter sizes that were chosen, by held-out cohort."""
    runs = scores.results.runs
    notes = []
    for arm in arms:
        own = runs[runs["arm"] == arm.label]
        if arm.filter_size != AUTO_SIZE or own.empty:
            continue
        by_cohort = own.groupby("hold_out")["chosen"].agg(lambda sizes: sorted({*sizes}))
        said = [f"{cohort} {', '.join(map(str, sizes))}" for cohort, sizes in by_cohort.items()]
        notes.append(
            f"{heading}; {arm.named()}: filter sizes chosen on the training cohorts, by held-out "
            f"cohort: {'; '.join(said)}."
        )
    return notes


def general_notes(scores: Scores, datasets: Collection[str], metrics: Sequence[str]) -> list[str]:
    """Return notes on subjects without all stages, and on simulated nights."""
    people = scores.people.loc[[*datasets]]
    incomplete, n_subjects = int(people["incomplete"].sum()), int(people["subjects"].sum())
    notes = [SIMULATED_NIGHTS] if scores.results.simulated else []
    if not incomplete:
        return notes
    counted = f"Subjects without an epoch of some stage: {incomplete:,} of {n_subjects:,}"
    return [f"{counted}; as in scikit-learn, {_handling(metrics)}.", *notes]


def _absent_seeds(arm: Arm, datasets: Sequence[str], seeds: set[int], scores: Scores) -> list[str]:
    """Return which datasets and seeds an arm lacks, and how that affects its means."""
    have = {dataset: scores.seeds(arm, dataset) for dataset in datasets}
    absent = [dataset for dataset in datasets if not have[dataset]]
    sentences = [f"no result on {listed(absent)}, and therefore no means"] if absent else []
    fewer: dict[str, list[str]] = {}
    for dataset, found in have.items():
        if found and found != seeds:
            fewer.setdefault(_seed_list(seeds - found), []).append(dataset)
    if not fewer:
        return sentences
    what = "; ".join(f"{which} on {listed(where)}" for which, where in fewer.items())
    complete = seeds.intersection(*have.values())
    if absent:
        means = ""
    elif complete:
        means = f", so means are over {_seed_list(complete)} only"
    else:
        means = ", so no seed has every dataset, and there are no means"
    return [*sentences, f"no {what}{means}"]


def _seed_list(seeds: Collection[int]) -> str:
    return f"{verb(seeds, 'seed', 'seeds')} {listed([str(seed) for seed in sorted(seeds)])}"


def _undefined(
    arm: Arm, datasets: Sequence[str], metrics: Sequence[str], scores: Scores
) -> list[str]:
    notes, known = [], [dataset for dataset in datasets if scores.seeds(arm, dataset)]
    for metric in metrics:
        where = [each for each in known if scores.score(arm, metric, each, ()) is None]
        if where:
            named = f"{METRIC_NAMES[metric]} is undefined for every subject of {listed(where)}"
            notes.append(f"{named}, so it has no means")
    return notes


def _handling(metrics: Sequence[str]) -> str:
    ways = []
    if "balanced_accuracy" in metrics:
        ways.append("balanced accuracy is the mean recall over the stages that a subject has")
    if any(metric.startswith("f1_") for metric in metrics):
        ways.append(
            "a subject counts in a stage's F1 if the subject has the stage or it was predicted"
        )
    if "macro_f1" in metrics:
        ways.append("macro F1 is over the stages that a subject has or that were predicted")
    if "weighted_f1" in metrics:
        ways.append("an absent stage has no weight in the weighted F1")
    return "; ".join(ways) or "every metric is over the epochs that a subject has"


_KEY = ["model", "balanced", "metric", "norm", "filter_size", "dataset"]
_HEADS = {
    "claim": "The paper contradicts itself",
    "wording": "Wording of the paper",
    "spread": "± in the paper",
    **dict.fromkeys(("mean", "bold", "rounding"), "Misprint in the paper"),
}


def paper_rows(
    name: str, columns: list["Named"], datasets: Collection[str]
) -> list[list[TableCell]]:
    """Return a table of the paper in the columns of ours."""
    table = paper_table(name)
    known = {tuple(_plain(row[key]) for key in _KEY): row for row in table.rows.to_dict("records")}
    printed = {*table.rows["dataset"]} - {*MEANS}
    # our columns need not repeat these: a class-wise table is of one norm
    of_all = {
        name: _plain(table.rows[name].iloc[0])
        for name in ("metric", "norm", "filter_size")
        if table.rows[name].nunique(dropna=False) == 1
    }
    rows: list[list[TableCell]] = []
    for model, balanced in dict.fromkeys((key[0], key[1]) for key in known):
        rows.append([TableCell(f"The paper ({table.label}): {setting_name(str(model), balanced)}")])
        for dataset in (*sorted({*datasets, *printed}), *MEANS):
            row = of_all | {"model": model, "balanced": balanced, "dataset": dataset}
            facts = [dict.fromkeys((*_KEY, "norm_depth")) | row | column for _, column in columns]
            numbers = [known.get(tuple(one[key] for key in _KEY)) for one in facts]
            rows.append([TableCell(dataset), *map(paper_entry, numbers, facts)])
    return rows


def paper_notes(name: str, datasets: Collection[str] | None = None) -> list[str]:
    """Return notes on a table of the paper, and on where it contradicts itself."""
    table = paper_table(name)
    printed = {*table.rows["dataset"]} - {*MEANS}
    notes = [f"Paper, {table.label}: {note}" for note in table.notes]
    if datasets is not None and {*datasets} != printed:
        notes.append(
            f"Paper, {table.label}: its means are over {len(printed)} datasets, ours over "
            f"{len(datasets)}; these are not the same, so means cannot be compared."
        )
    return notes + [
        f"{_HEADS[misprint.kind]} ({misprint.place}): it says: {misprint.says}; "
        f"its tables show: {misprint.shows}."
        for misprint in misprints()
        if name in misprint.tables
    ]


def paper_entry(row: dict[str, Any] | None, facts: dict[str, Any], digits: int = 2) -> TableCell:
    """Return a number of the paper, or an empty entry."""
    own = {"block": PAPER} | facts
    if row is None or pd.isna(row["value"]):
        return TableCell(figure(None), facts=own)
    value, std = row["value"], _plain(row["std"])
    return TableCell(figure(value, std, digits), value, bool(row["bold"]), own | {"std": std})


def _plain(value: Any) -> Any:
    return None if value is None or pd.isna(value) else value


LOWER_IS_BETTER = ("calibration_error",)
Named = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Block:
    """Rows under a heading."""

    heading: str
    facts: dict[str, Any]  # what all its numbers share: fields of `Arm`, metric, dataset
    rows: list[Named]  # names of the rows, and what their numbers share
    datasets: tuple[str, ...]  # that its means are taken over
    setting: str = ""  # its name in notes, if not the heading: blocks with equal notes share one


@dataclass(frozen=True)
class TableLayout:
    """A table of scores before it is filled."""

    name: str
    title: str
    columns: list[Named]  # facts of block, row and column together say what a number measures
    blocks: list[Block]
    first: str = "Dataset"  # name of the first column
    paper: str | None = None  # the table of the paper that is shown below
    bold: bool = True  # whether the best of a row is bold; False if columns are not comparable
    notes: list[str] = field(default_factory=list)

    def facts(self, block: Block) -> list[dict[str, Any]]:
        """Return what the numbers of a block measure, row by row."""
        rows, columns = ([facts for _, facts in named] for named in (block.rows, self.columns))
        return [block.facts | row | column for row in rows for column in columns]


def dataset_block(scores: Scores, setting: Setting, arms: Iterable[Arm], **facts: Any) -> Block:
    """Return a block with a row for each dataset that any of the arms has, and for both means."""
    datasets = scores.datasets_of(arms)
    rows = [(name, {"dataset": name}) for name in (*datasets, *MEANS)]
    model, balanced = setting
    shared = {"model": model, "balanced": balanced, **facts}
    return Block(setting_name(model, balanced), shared, rows, datasets)


def column(arm: Arm, said: Collection[str] = ()) -> Named:
    """Return the column of an arm, for any training size."""
    names = ("norm", "filter_size", "norm_depth")
    return arm.named(said), {name: getattr(arm, name) for name in names}


def fill(layout: TableLayout, scores: Scores) -> Table:
    """Fill a table with our scores and those of the paper."""
    rows: list[list[TableCell]] = []
    notes: list[str] = []
    shown: set[str] = set()
    facts = [each for block in layout.blocks for each in layout.facts(block)]
    metrics = [*dict.fromkeys(each["metric"] for each in facts)]
    for block in layout.blocks:
        rows.append([TableCell(block.heading)])
        filled = [_row(layout, block, named, scores) for named in block.rows]
        rows += [row for row, _ in filled]
        arms = [*dict.fromkeys(map(_arm, layout.facts(block)))]
        setting = block.setting or block.heading
        notes += block_notes(setting, arms, block.datasets, metrics, scores)
        notes += chosen_notes(setting, arms, scores)
        unlike = [row[0].text for row, alike in filled if not alike]
        if layout.bold and unlike:
            notes.append(f"{setting}; {listed(unlike)}: {NO_BOLD}")
        shown |= {*block.datasets}
    reading = [SPREAD, BOLD] if layout.bold else [SPREAD]
    notes = [*layout.notes, *reading, *dict.fromkeys(notes), *general_notes(scores, shown, metrics)]
    if layout.paper is not None:
        rows += paper_rows(layout.paper, layout.columns, shown)
        notes += paper_notes(layout.paper, shown)
    title = full_title(layout.title, scores.results)
    head = [layout.first, *(name for name, _ in layout.columns)]
    return Table(layout.name, title, head, rows, notes)


def full_title(title: str, results: Results) -> str:
    """Return a title that names the recipe, and says whether the nights are simulated."""
    simulated = ", of simulated nights" if results.simulated else ""
    return f"{title}{simulated}, recipe {results.recipe}"


def our_facts(results: Results) -> dict[str, Any]:
    """Return the facts of all our numbers, as columns of the CSV file."""
    simulated = "yes" if results.simulated else "no"
    return {"block": OURS, "recipe": results.recipe, "simulated": simulated}


def _row(
    layout: TableLayout, block: Block, named: Named, scores: Scores
) -> tuple[list[TableCell], bool]:
    """Return a row, and whether all its numbers are over the same seeds."""
    name, row = named
    facts = [block.facts | row | column for _, column in layout.columns]
    entries = [_layout_entry(one, block.datasets, scores) for one in facts]
    seeds = {
        (_layout_seeds(one, block.datasets, scores), entry.facts["seeds"])
        for one, entry in zip(facts, entries, strict=True)
        if entry.value is not None
    }
    alike = len(seeds) < 2
    if layout.bold and alike:
        entries = with_best(entries, lowest=facts[0]["metric"] in LOWER_IS_BETTER)
    return [TableCell(name), *entries], alike


def _layout_seeds(facts: dict[str, Any], datasets: Sequence[str], scores: Scores) -> frozenset[int]:
    """Return the seeds behind a number; for a mean, those that have every dataset."""
    over = datasets if facts["dataset"] in MEANS else [facts["dataset"]]
    found = (scores.seeds(_arm(facts), dataset) for dataset in over)
    return frozenset.intersection(*map(frozenset, found))


def _layout_entry(facts: dict[str, Any], datasets: Sequence[str], scores: Scores) -> TableCell:
    own = our_facts(scores.results) | facts
    if facts["filter_size"] == AUTO_SIZE:
        own["filter_size"] = AUTO
    found = scores.score(_arm(facts), facts["metric"], facts["dataset"], datasets)
    if found is None:
        return TableCell(figure(None), facts=own)
    std = None if found.std != found.std else found.std
    own |= {"std": std, "seeds": found.seeds, "subjects": found.subjects}
    return TableCell(figure(found.mean, std), found.mean, facts=own)


def _arm(facts: dict[str, Any]) -> Arm:
    return Arm(**{name: facts[name] for name in ARM})
