"""Contests: norms with the same model and training size, on the scores that all of them have."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pandas as pd

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT, overall_means
from psdnorm.evaluation.statistics import BlockTables, block_tables
from psdnorm.present import CannotDraw
from psdnorm.report.results import Results, model_place, norms_in_order, representative_arm
from psdnorm.runtime import listed, plural, verb
from psdnorm.training import norm_name, setting_name, unusual

METRIC, BATCH = "balanced_accuracy", "batch"
MEANS = (MEAN_DATASET, MEAN_SUBJECT)
Place = tuple[str, int]  # a held-out cohort and a seed
_TIE = 1e-12  # as blocks are tied


@dataclass(frozen=True, eq=False)
class Contest:
    """Norms with the same model and training size, on the scores that all of them have."""

    results: Results  # of the compared arms only
    model: str
    balanced: int | None  # balanced@N; None for all subjects
    arms: dict[str, str]  # the arm that represents each norm, in the order of the paper
    labels: dict[str, str]  # what each norm is called in figures
    others: list[str]  # arms of the same model and size that do not represent a norm
    dropped: dict[str, str]  # norms that share too few places with the others, and their arms
    tables: BlockTables  # balanced accuracies as shares, blocks by norms
    reasons: dict[str, str]  # by dropped norm, a sentence that says why
    uncounted: list[str]  # a sentence for each cohort, or part of one, that is not counted
    partial: str  # how an incomplete grid is counted; empty if complete
    other_settings: list[str] = field(default_factory=list)  # a sentence for each norm with any

    @property
    def name(self) -> str:
        """Model and training size, in words."""
        return setting_name(self.model, self.balanced)

    @property
    def key(self) -> str:
        """Model and training size, in file names."""
        return f"{self.model}-{'all' if self.balanced is None else f'at{self.balanced}'}"

    @cached_property
    def by_seed(self) -> pd.DataFrame:
        """The scores that every norm has, by cohort, subject and seed; (n_scores, n_norms)."""
        return self.tables.by_seed.dropna()

    @cached_property
    def subjects(self) -> pd.DataFrame:
        """Mean over seeds, for the subjects that every norm has; (n_subjects, n_norms)."""
        return self.tables.subjects.dropna()

    @cached_property
    def percent(self) -> BlockTables:
        """The tables in percent."""
        names = ("by_seed", "subjects", "datasets")
        return replace(self.tables, **{name: 100 * getattr(self.tables, name) for name in names})

    @cached_property
    def means(self) -> pd.DataFrame:
        """Both means, after averaging each subject over seeds; (2, n_norms)."""
        return pd.DataFrame(overall_means(self.subjects)).T

    @cached_property
    def seeds(self) -> dict[str, pd.DataFrame]:
        """Values of each mean in every seed that has all cohorts, (n_seeds, n_norms)."""
        complete = self.tables.complete_seeds
        means = overall_means(self.by_seed, ["seed"])
        return {name: values.loc[complete] for name, values in means.items()}

    @cached_property
    def scores(self) -> pd.DataFrame:
        """The rows of ``results.scores`` whose balanced accuracies are in the tables."""
        index, scores = self.by_seed.index, self.results.scores
        return scores[pd.MultiIndex.from_frame(scores[list(index.names)]).isin(index)]

    def leaders(self, mean: str = MEAN_DATASET) -> list[str]:
        """Return the norm with the highest mean, or all norms that tie for it."""
        means = self.means.loc[mean]
        return [str(norm) for norm in means.index[means >= means.max() - _TIE]]

    @property
    def n_seeds(self) -> tuple[int, int]:
        """Fewest and most seeds counted in a cohort; 0 if there are none."""
        return self.tables.n_seeds

    @property
    def cohorts(self) -> "pd.Series[int]":
        """Number of counted subjects, by cohort."""
        return self.subjects.groupby(level="cohort").size()

    @property
    def omitted_arms(self) -> list[str]:
        """A sentence for each norm, and each setting of a norm, that is not compared."""
        return [*self.reasons.values(), *self.other_settings]

    @property
    def remarks(self) -> str:
        """What is not counted, as sentences for a caption."""
        return " ".join([*shortened(self.uncounted), *self.omitted_arms])

    def needs_batch_norm(self, what: str) -> None:
        """Raise CannotDraw if gains over BatchNorm cannot be drawn."""
        if BATCH not in self.labels:
            raise CannotDraw(f"{what} ({self.name}): BatchNorm has no result.")
        self.needs_two_norms(what)

    def needs_two_norms(self, what: str) -> None:
        """Raise CannotDraw if there are no norms to compare."""
        if len(self.labels) < 2:
            only = next(iter(self.labels.values()))
            why = "".join(f" {sentence}" for sentence in self.reasons.values())
            raise CannotDraw(f"{what} ({self.name}): it compares norms, found only {only}.{why}")
        if self.subjects.empty:
            raise CannotDraw(
                f"{what} ({self.name}): no subject has a score of every norm in the same seed."
            )


def contests(results: Results) -> list[Contest]:
    """Return one contest per model and training size, by number of norms, then runs; most first."""
    groups = results.runs.groupby(["model", "balanced"], dropna=False, sort=False)
    return sorted(
        (_contest(results, runs) for _, runs in groups),
        key=lambda contest: (-len(contest.arms), -len(contest.by_seed), *paper_order(contest)),
    )


def paper_order(contest: Contest) -> tuple:
    """Return the sort key of a contest in the order of the paper: models, then sizes."""
    return model_place(contest.model), contest.balanced is not None, -(contest.balanced or 0)


def _contest(results: Results, runs: pd.DataFrame) -> Contest:
    norms = norms_in_order(runs["norm"])
    arms = {norm: representative_arm(runs[runs["norm"] == norm]) for norm in norms}
    places = {norm: _places(runs[runs["arm"] == arm]) for norm, arm in arms.items()}
    kept, shared = norms_to_compare(places)
    compared = {norm: arms[norm] for norm in kept}
    chosen = runs[runs["arm"].isin(compared.values())]
    scores = results.subjects[results.subjects["run"].isin(chosen["run"])]
    columns = scores[["run", "cohort", "subject", METRIC]]
    merged = columns.merge(chosen[["run", "norm", "seed"]], on="run")
    tables = block_tables(merged, METRIC, norms=kept)
    labels, other_settings = _settings(runs, compared)
    missing = [run for run in results.missing if run.label in compared.values()]
    asked = {(run.hold_out, run.seed) for run in missing}
    first = runs.iloc[0]
    return Contest(
        results=replace(results, runs=chosen, subjects=scores),
        model=str(first["model"]),
        balanced=None if pd.isna(first["balanced"]) else int(first["balanced"]),
        arms=compared,
        labels=labels,
        others=sorted({*runs["arm"]} - {*arms.values()}),
        dropped={norm: arm for norm, arm in arms.items() if norm not in kept},
        tables=tables,
        reasons={n: _reason(n, places[n], kept, shared) for n in arms if n not in kept},
        uncounted=uncounted_scores(tables),
        partial=_partial([places[n] for n in kept], asked, tables.complete_seeds),
        other_settings=other_settings,
    )


def _settings(runs: pd.DataFrame, arms: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the label of each norm, and a sentence for each norm with other settings."""
    labels, sentences = {}, []
    for norm, arm in arms.items():
        own = runs[runs["norm"] == norm].sort_values(["filter_size", "norm_depth"])
        settings = own.drop_duplicates("arm").set_index("arm")[["filter_size", "norm_depth"]]
        labels[norm] = norm_name(norm) + unusual(*settings.loc[arm])
        others = [unusual(*each).strip(" ()") for each in settings.drop(arm).to_numpy()]
        if len(others) > 4:
            others = [*others[:3], f"{len(others) - 3} other settings"]
        if others:
            sentences.append(f"{norm_name(norm)} with {listed(others)} is not shown.")
    return labels, sentences


def norms_to_compare(places: Mapping[str, set[Place]]) -> tuple[list[str], set[Place]]:
    """Choose the norms to compare, and the places that all of them have."""

    def having(common: frozenset[Place]) -> list[str]:
        return [norm for norm, own in places.items() if common <= own]

    def worth(common: frozenset[Place]) -> tuple:
        norms = having(common)
        pairs = len(norms) * (len(norms) - 1) // 2
        return pairs * len(common), len(common), BATCH in norms, "psd" in norms

    shared: dict[frozenset[Place], None] = {}
    for own in map(frozenset, places.values()):
        shared |= dict.fromkeys([own, *(own & other for other in shared)])
    best = max(filter(None, shared), key=worth)
    return having(best), set(best)


def _places(runs: pd.DataFrame) -> set[Place]:
    return {*zip(runs["hold_out"], runs["seed"], strict=True)}


def _reason(norm: str, own: set[Place], kept: list[str], shared: set[Place]) -> str:
    whose = "the other norms share" if len(kept) > 1 else f"{norm_name(kept[0])} has"
    return (
        f"{norm_name(norm)} is not compared: it has {len(own & shared) or 'none'} of the "
        f"{len(shared)} places (a cohort in a seed) that {whose}."
    )


def means_of_others(results: Results, contest: Contest) -> "pd.Series[float]":
    """Return Mean(Dataset) of the arms that do not represent a norm, on the counted scores."""
    counted = contest.by_seed.index
    arms = results.runs[results.runs["arm"].isin(contest.others)][["run", "arm", "seed"]]
    scores = results.subjects[["run", "cohort", "subject", METRIC]].merge(arms, on="run")
    values = scores.pivot(index=list(counted.names), columns="arm", values=METRIC)
    subjects = values.reindex(counted).dropna(axis="columns").groupby(["cohort", "subject"]).mean()
    return overall_means(subjects)[MEAN_DATASET]


def seeds_of_cohorts(values: pd.DataFrame) -> "pd.Series[int]":
    """Return the number of seeds of every cohort; empty if values are not by seed."""
    if "seed" not in values.index.names:
        return pd.Series(dtype=int)
    known = values.dropna().index.to_frame(index=False)
    return known.groupby("cohort", observed=True)["seed"].nunique()


def has_seeds(values: pd.DataFrame) -> bool:
    """Whether any cohort has at least two seeds, so that the bootstrap can also resample seeds."""
    return bool((seeds_of_cohorts(values) > 1).any())


def _partial(
    places: Sequence[set[Place]], asked: Collection[Place], complete: Sequence[int]
) -> str:
    """Say how many runs have no result and how the others are counted; empty if all have one."""
    known = {*asked}.union(*places)
    cohorts, expected = {cohort for cohort, _ in known}, len(known)
    total, there = len(places) * expected, sum(map(len, places))
    if there == total:
        return ""
    shared = set.intersection(*places)
    without = sorted(cohorts - {cohort for cohort, _ in shared})
    omitted = f" ({listed(without)} {verb(without, 'is', 'are')} excluded)" if without else ""
    compared = (
        f"norms are compared on the {len(shared):,} of {expected:,} places (a cohort in a seed) "
        "that all of them have, where "
    )
    found = f"only seed {complete[0]} has" if complete else "no seed has"
    spread = f"there is no ±, as {found} all of these cohorts"
    if len(complete) > 1:
        spread = f"± is over seeds {listed([*map(str, complete)])}, which have all of these cohorts"
    return (
        f"Incomplete: {total - there:,} of {plural(total, 'run')} "
        f"{'has' if total - there == 1 else 'have'} no result; {compared * (len(places) > 1)}"
        f"each cohort counts by the mean over its seeds{omitted}; {spread}."
    )


def uncounted_scores(tables: BlockTables) -> list[str]:
    """Return a sentence for each cohort, or part of one, that some norm lacks."""
    sentences = []
    counted = {*tables.by_seed.dropna().index.get_level_values("cohort")}
    totals = tables.by_seed.groupby(level="cohort", observed=True).size()
    for cohort, missing in tables.lacking.iterrows():
        total = totals[cohort]
        if cohort in counted:
            by_number: dict[int, list[str]] = {}
            for norm, count in missing[missing > 0].items():
                by_number.setdefault(int(count), []).append(norm_name(str(norm)))
            sentences += [
                f"{listed(norms)} {verb(norms, 'is', 'are each')} missing {count:,} of the "
                f"{total:,} scores of {cohort}."
                for count, norms in by_number.items()
            ]
            continue
        without = [norm_name(str(norm)) for norm in missing.index[missing == total]]
        reason = f"{listed(without)} {verb(without, 'has', 'have')} no score there"
        if not without:
            reason = "no subject has a score of every norm in the same seed"
        sentences.append(f"{cohort} is excluded: {reason}.")
    return sentences


def shortened(sentences: list[str], most: int = 3) -> list[str]:
    """Return the first sentences and how many more there are."""
    if len(sentences) <= most + 1:
        return sentences
    return [*sentences[:most], f"And {len(sentences) - most} more like these."]
