"""The paper's tables of scores: datasets in rows, norms or stages in columns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from psdnorm.models.card import STAGES
from psdnorm.report.naming import listed, norm_name
from psdnorm.report.tables.layout import Layout, Named, column, dataset_block
from psdnorm.report.tables.notes import METRIC_NAMES, PROTOCOL
from psdnorm.report.tables.table_scores import Arm, Scores, protocol_arm

MAIN = ("batch", "layer", "instance", "tma", "psd")
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
    for norm in MAIN:
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
    protocol = {norm: protocol_arm(USLEEP, norm, "all") for norm in (*MAIN, "psd-white")}
    main = tuple(protocol[norm] for norm in MAIN)
    whitening = tuple(protocol[norm] for norm in ("batch", "instance", "psd", "psd-white"))
    low_data = (*main[:3], main[4], replace(main[4], filter_size=LOW_DATA_FILTER))
    adapted = ["adabn3", "adabn12", "adabnall"]
    adapted += [arm.norm for arm in found if arm.norm.startswith("adabn")]
    adabn = tuple(protocol_arm(USLEEP, norm, "all") for norm in dict.fromkeys(adapted))
    # the paper's four, and LayerNorm for whoever has it
    further = [arm for arm in found if arm.model == TRANSFORMER and arm.norm == "layer"]
    transformer = tuple(arm for arm in main if arm.norm != "layer" or further)
    return [
        _Plan("results", "Balanced accuracy of U-Sleep, %", main, MAIN, USLEEP),
        _Plan("f1", "Weighted F1, %", main, MAIN, metric="weighted_f1"),
        _Plan("whitening", "Barycenter and white target, balanced accuracy, %", whitening,
              ("psd-white",)),
        _Plan("cnn-transformer", "Balanced accuracy of CNNTransformer, %", transformer,
              MAIN, TRANSFORMER),
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
