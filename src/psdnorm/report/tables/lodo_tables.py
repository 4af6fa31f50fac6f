"""Tables of leave-one-dataset-out scores."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from psdnorm.constants import STAGES
from psdnorm.report.tables.layout import (
    MEANS,
    METRIC_NAMES,
    PROTOCOL,
    Block,
    Layout,
    Named,
    Scores,
    column,
    dataset_block,
    in_order,
)
from psdnorm.runtime import listed
from psdnorm.training import (
    ALL,
    PAPER_NORMS,
    PROTOCOL_DEPTH,
    PROTOCOL_FILTER,
    Arm,
    model_name,
    norm_name,
    setting_name,
)

USLEEP, TRANSFORMER = "usleep", "cnn-transformer"
LOW_DATA, LOW_DATA_FILTER = 40, 15
_AS = ", with the protocol's filter size and depth where it has them"


@dataclass(frozen=True)
class _Plan:
    """A table with norms in columns.

    Attributes
    ----------
    name : str
        Of the paper's table, and of ours.
    title : str
    arms : tuple of Arm
        The columns; of any model and setting.
    needs : tuple of str
        Norms of which one at least must be there.
    model : str, optional
        The only model that it shows.
    balanced : int, optional
        The only size that it shows.
    metric : str
    """

    name: str
    title: str
    arms: tuple[Arm, ...]
    needs: tuple[str, ...]
    model: str | None = None
    balanced: int | None = None
    metric: str = "balanced_accuracy"

    @property
    def columns(self) -> list[Named]:
        """Columns, with the filter size of a norm that is there with two of them."""
        norms = [arm.norm for arm in self.arms]
        twice = {norm for norm in norms if norms.count(norm) > 1}
        return [column(arm, ["filter_size"] if arm.norm in twice else []) for arm in self.arms]


def lodo_layouts(scores: Scores) -> tuple[list[Layout], list[str]]:
    """Lay out the paper's tables of scores.

    Parameters
    ----------
    scores : Scores

    Returns
    -------
    layouts : list of Layout
        In the order of the paper.
    missing : list of str
        A sentence for each that has no result.
    """
    layouts, missing = [], []
    for plan in _plans(scores.arms):
        layout = _by_norm(plan, scores)
        if layout is None:
            size = "" if plan.balanced is None else f" at balanced@{plan.balanced}"
            title = plan.title.removesuffix(", %")
            needs = " or ".join(map(norm_name, plan.needs))
            missing.append(
                f"{title} ({plan.name}) is not there: it needs a result of {needs}{size}{_AS}."
            )
        else:
            layouts.append(layout)
    for norm in PAPER_NORMS:
        layout = _by_stage(norm, scores)
        if layout is None:
            name = norm_name(norm)
            missing.append(
                f"F1 of each stage with {name} (classwise-{norm}) is not there: it needs a result "
                f"of {name}{_AS}."
            )
        else:
            layouts.append(layout)
    return layouts, missing


def _plans(found: Sequence[Arm]) -> list[_Plan]:
    protocol = {norm: Arm.of_protocol(USLEEP, norm, "all") for norm in (*PAPER_NORMS, "psd-white")}
    main = tuple(protocol[norm] for norm in PAPER_NORMS)
    whitening = tuple(protocol[norm] for norm in ("batch", "instance", "psd", "psd-white"))
    low_data = (*main[:3], main[4], replace(main[4], filter_size=LOW_DATA_FILTER))
    adapted = ["adabn3", "adabn12", "adabnall"]
    adapted += [arm.norm for arm in found if arm.norm.startswith("adabn")]
    adabn = tuple(Arm.of_protocol(USLEEP, norm, "all") for norm in dict.fromkeys(adapted))
    # the paper's four, and LayerNorm for whoever has it
    further = [arm for arm in found if arm.model == TRANSFORMER and arm.norm == "layer"]
    transformer = tuple(arm for arm in main if arm.norm != "layer" or further)
    return [
        _Plan("results", "Balanced accuracy of U-Sleep, %", main, PAPER_NORMS, USLEEP),
        _Plan("f1", "Weighted F1, %", main, PAPER_NORMS, metric="weighted_f1"),
        _Plan("whitening", "Barycenter and white target, balanced accuracy, %", whitening,
              ("psd-white",)),
        _Plan("cnn-transformer", "Balanced accuracy of CNNTransformer, %", transformer,
              PAPER_NORMS, TRANSFORMER),
        _Plan("low-data", "Few subjects to learn from, balanced accuracy, %", low_data,
              ("batch", "layer", "instance", "psd"), balanced=LOW_DATA),
        _Plan("adabn", "AdaBN and the other norms, balanced accuracy, %",
              (*main[:3], *adabn, *main[3:]), tuple(arm.norm for arm in adabn)),
    ]  # fmt: skip


def _by_norm(plan: _Plan, scores: Scores) -> Layout | None:
    wanted = [facts for _, facts in plan.columns]
    shown = [
        arm
        for arm in scores.arms
        if column(arm)[1] in wanted
        and plan.model in (None, arm.model)
        and plan.balanced in (None, arm.balanced)
    ]
    settings = scores.settings(arm for arm in shown if arm.norm in plan.needs)
    if not settings:
        return None
    blocks = [
        dataset_block(scores, setting, _at(setting, shown), metric=plan.metric)
        for setting in settings
    ]
    notes = [_protocol_note(plan, settings, scores)]
    return Layout(plan.name, plan.title, plan.columns, blocks, paper=plan.name, notes=notes)


def _by_stage(norm: str, scores: Scores) -> Layout | None:
    arms = [arm for arm in scores.arms if arm.norm == norm and arm.is_protocol]
    if not arms:
        return None
    columns: list[Named] = [(stage, {"metric": f"f1_{stage}"}) for stage in STAGES]
    columns.append(("Weighted F1", {"metric": "weighted_f1"}))
    facts = column(arms[0])[1]
    blocks = [
        dataset_block(scores, setting, _at(setting, arms), **facts)
        for setting in scores.settings(arms)
    ]
    name = f"classwise-{norm}"
    title = f"F1 of each stage with {norm_name(norm)}, %"
    return Layout(name, title, columns, blocks, paper=name, bold=False, notes=[PROTOCOL])


def _at(setting: tuple, arms: Iterable[Arm]) -> list[Arm]:
    return [arm for arm in arms if (arm.model, arm.balanced) == setting]


def _protocol_note(plan: _Plan, settings: Sequence[tuple], scores: Scores) -> str:
    """Say which filter size and depth are shown, and which are elsewhere."""
    norms = {arm.norm for arm in plan.arms}
    shown = [facts for _, facts in plan.columns]
    others = {
        arm.named(): None
        for arm in scores.arms
        if arm.norm in norms
        and (arm.model, arm.balanced) in settings
        and column(arm)[1] not in shown
    }
    note = (
        f"{METRIC_NAMES[plan.metric]} on the held-out dataset; unless a column says otherwise, "
        "f = 5 and the norm in the first 3 blocks, as in the protocol"
    )
    if others:
        note += f"; {listed([*others])}: see the tables of filter sizes and depths"
    return f"{note}."


OTHER_METRICS = ("accuracy", "macro_f1", "cohen_kappa", "calibration_error")
_NO_NUMBERS = "The paper shows this as a figure ({label}) and gives no numbers."
_BASELINES = ("batch", "layer", "instance")


def curve_layouts(scores: Scores) -> tuple[list[Layout], list[str]]:
    """Lay out scores against filter size, depth and training size, and the other metrics.

    Parameters
    ----------
    scores : Scores

    Returns
    -------
    layouts : list of Layout
    missing : list of str
        A sentence for each curve that has no second point.
    """
    kinds: list[tuple[str, str, Iterator[Layout]]] = [
        ("filter size", "another filter size than 5", _filter_sizes(scores)),
        ("number of training subjects", "one norm with two sizes", _training_sizes(scores)),
        (
            "number of layers with the norm",
            "another number of blocks with the norm than 3",
            _depths(scores),
        ),
    ]
    layouts, missing = [], []
    for name, needs, found in kinds:
        laid = [*found]
        layouts += laid
        if not laid:
            # named as its figure, which lacks for the same reason
            missing.append(f"Balanced accuracy by {name}: it needs results of {needs}.")
    return [*layouts, _other_metrics(scores)], missing


def _filter_sizes(scores: Scores) -> Iterator[Layout]:
    arms = [
        arm
        for arm in scores.arms
        if arm.filter_size is not None and arm.norm_depth in (None, PROTOCOL_DEPTH)
    ]
    notes = [_NO_NUMBERS.format(label="fig:sensitive"), "f is the filter size."]
    return _curves(scores, "filter_size", PROTOCOL_FILTER, arms, notes)


def _depths(scores: Scores) -> Iterator[Layout]:
    arms = [
        arm
        for arm in scores.arms
        if arm.norm_depth is not None and (arm.norm_depth != PROTOCOL_DEPTH or arm.is_protocol)
    ]
    notes = [
        _NO_NUMBERS.format(label="fig:usleep_layers"),
        "d is the number of blocks with the norm; f = 5 where a column does not say it.",
    ]
    return _curves(scores, "norm_depth", PROTOCOL_DEPTH, arms, notes)


def _curves(
    scores: Scores, axis: str, of_protocol: int | None, on_curve: Sequence[Arm], notes: list[str]
) -> Iterator[Layout]:
    """Yield a table for each setting that has a norm at another value than the protocol's."""
    varied = [arm for arm in on_curve if getattr(arm, axis) != of_protocol]
    for setting in scores.settings(varied):
        norms = {arm.norm for arm in varied if (arm.model, arm.balanced) == setting}
        arms = [
            arm
            for arm in scores.arms
            if (arm.model, arm.balanced) == setting
            and (
                (arm in on_curve and arm.norm in norms)
                or (arm.norm in _BASELINES and arm.is_protocol)
            )
        ]
        words = axis.replace("_", " ")
        yield Layout(
            f"{axis.replace('_', '-')}-{setting[0]}-{setting[1]}",
            f"Balanced accuracy against {words}, {setting_name(*setting)}, %",
            [column(arm, [axis] if arm.norm in norms else []) for arm in arms],
            [dataset_block(scores, setting, arms, metric="balanced_accuracy")],
            notes=notes,
        )


def _training_sizes(scores: Scores) -> Iterator[Layout]:
    for model in dict.fromkeys(arm.model for arm in scores.arms):
        sizes: dict[Arm, set[int | str]] = {}
        for arm in scores.arms:
            if arm.model == model:
                alike = Arm(arm.model, arm.norm, arm.filter_size, arm.norm_depth, ALL)
                sizes.setdefault(alike, set()).add(arm.balanced)
        arms = [arm for arm, found in sizes.items() if len(found) > 1]
        if not arms:
            continue
        rows = sorted(set().union(*(sizes[arm] for arm in arms)), key=_all_last)
        shown = [arm for arm in scores.arms if column(arm) in map(column, arms)]
        datasets = scores.datasets_of(arm for arm in shown if arm.model == model)
        facts = {"model": model, "metric": "balanced_accuracy"}
        name = model_name(model)
        blocks = [
            Block(
                f"{name}, {mean}",
                facts | {"dataset": mean},
                [(str(size), {"balanced": size}) for size in rows],
                datasets,
                setting=name,
            )
            for mean in MEANS
        ]
        yield Layout(
            f"training-size-{model}",
            f"Balanced accuracy of {name} against training size, %",
            [column(arm) for arm in sorted(arms, key=in_order)],
            blocks,
            first="Subjects of each cohort, at most",
            notes=[_NO_NUMBERS.format(label="fig:number_subjects")],
        )


def _other_metrics(scores: Scores) -> Layout:
    """Lay out metrics in rows; norms with another filter or depth only where there is no other."""
    arms = sorted(
        {Arm.of_protocol(arm.model, arm.norm, ALL) for arm in scores.arms if arm.is_protocol}
        or {Arm(a.model, a.norm, a.filter_size, a.norm_depth, ALL) for a in scores.arms},
        key=in_order,
    )
    notes = ["The paper has no such table. The lower a calibration error, the better."]
    notes += [PROTOCOL] if all(arm.is_protocol for arm in arms) else []
    columns = [*{column(arm)[0]: column(arm) for arm in arms}.values()]
    blocks = []
    for model, balanced in scores.settings(scores.arms):
        shown = [arm for arm in scores.arms if (arm.model, arm.balanced) == (model, balanced)]
        shown = [arm for arm in shown if column(arm) in columns]
        setting = setting_name(model, balanced)
        blocks += [
            Block(
                f"{setting}, {mean}",
                {"model": model, "balanced": balanced, "dataset": mean},
                [(METRIC_NAMES[metric], {"metric": metric}) for metric in OTHER_METRICS],
                scores.datasets_of(shown),
                setting=setting,
            )
            for mean in MEANS
            if shown
        ]
    return Layout("other-metrics", "Other metrics, %", columns, blocks, first="Metric", notes=notes)


def _all_last(size: int | str) -> tuple[bool, int]:
    return size == ALL, 0 if size == ALL else int(size)
