"""What the paper shows as curves, and metrics that it does not show, as tables."""

from collections.abc import Iterator, Sequence

from psdnorm.report.naming import ALL, PROTOCOL_FILTER, model_name, setting_name
from psdnorm.report.tables.layout import Block, Layout, column, dataset_block
from psdnorm.report.tables.notes import METRIC_NAMES, PROTOCOL
from psdnorm.report.tables.table_scores import (
    MEANS,
    PROTOCOL_DEPTH,
    Arm,
    Scores,
    in_order,
    protocol_arm,
)

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
        {protocol_arm(arm.model, arm.norm, ALL) for arm in scores.arms if arm.is_protocol}
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
