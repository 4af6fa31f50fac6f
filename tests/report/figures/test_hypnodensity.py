"""The nights that are shown are the best, the median and the worst, as the network saw them."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from experiment_runs import write_runs
from sklearn.metrics import balanced_accuracy_score

from psdnorm.evaluation import score_predictions, write_scores
from psdnorm.experiments.grid import Axes
from psdnorm.present.figure import CannotDraw
from psdnorm.report.contest import contests
from psdnorm.report.figures.night_figures import draw_hypnodensity
from psdnorm.report.results import read_results

SUBJECTS = 5
P = [f"p{i}" for i in range(5)]


def predictions(cohort, subjects=SUBJECTS, visits=("1", "2"), n=60):
    """Predictions that are worse from subject to subject; the last epochs are not central."""
    tables = []
    for subject in range(subjects):
        for visit in visits:
            rng = np.random.default_rng([subject, int(visit), *cohort.encode()])
            true = rng.integers(0, 5, n)
            right = rng.random(n) < 0.95 - 0.15 * subject
            p = np.full((n, 5), 0.1)
            p[np.arange(n), np.where(right, true, (true + 1) % 5)] = 0.6
            true[:4] = -1
            known = {"cohort": cohort, "subject": f"s{subject}", "visit": visit}
            known |= {"recording": f"{cohort}-{subject}-{visit}", "epoch": np.arange(n)}
            known |= {"central": np.arange(n) < n - 10, "true": true}
            tables.append(pd.DataFrame(known | dict(zip(P, p.T, strict=True))))
    return tables


def keep(folder, tables):
    schema = pa.Schema.from_pandas(tables[0], preserve_index=False)
    with pq.ParquetWriter(folder / "predictions.parquet", schema) as writer:
        for table in tables:
            writer.write_table(pa.Table.from_pandas(table, schema, preserve_index=False))
    write_scores(folder / "scores.parquet", score_predictions(pd.concat(tables)))


@pytest.fixture
def kept(tmp_path):
    """Two cohorts whose BatchNorm and PSDNorm runs kept their predictions."""
    axes = [Axes(norms=("batch", "psd"), hold_outs=("ABC", "MASS"), seeds=(0,))]
    for run in write_runs(tmp_path, axes):
        subjects = SUBJECTS if run.hold_out == "ABC" else 2
        keep(tmp_path / "cells" / run.name, predictions(run.hold_out, subjects))
    return tmp_path


def draw(path):
    return draw_hypnodensity(contests(read_results(path)))


def by_hand(tables):
    """Balanced accuracy of central, scored epochs by scikit-learn."""
    table = pd.concat(tables)
    table = table[table["central"] & (table["true"] >= 0)]
    return balanced_accuracy_score(table["true"], table[P].to_numpy().argmax(axis=1))


def test_they_are_the_best_the_median_and_the_worst_subject(kept):
    people = {}
    for cohort, subjects in {"ABC": SUBJECTS, "MASS": 2}.items():
        for table in predictions(cohort, subjects):
            people.setdefault((cohort, table["subject"].iloc[0]), []).append(table)
    ordered = sorted(people, key=lambda who: -by_hand(people[who]))
    nights = {who: sorted(by_hand([night]) for night in people[who]) for who in people}
    titles = [axes.get_title(loc="left") for axes in draw(kept).canvas.axes[::2]]
    places = {"best": (0, -1), "median": (3, 0), "worst": (6, 0)}
    for title, (rank, (place, of_nights)) in zip(titles, places.items(), strict=True):
        cohort, subject = ordered[place]
        score = 100 * nights[ordered[place]][of_nights]
        assert title == f"{rank}: {cohort} {subject}, balanced accuracy {score:.2f} %"


def test_areas_are_the_probabilities_and_the_line_the_true_stages(kept):
    drawing = draw(kept)
    above, below = drawing.canvas.axes[:2]
    words = above.get_title(loc="left")
    cohort, subject = words.removeprefix("best: ").split(",")[0].split()
    nights = [t for t in predictions(cohort) if t["subject"].iloc[0] == subject]
    night = max(nights, key=lambda table: by_hand([table]))
    found = {patch.get_label(): patch.get_data() for patch in below.patches}
    for stage, column in zip(("W", "N1", "N2", "N3", "REM"), P, strict=True):
        values, edges, baseline = found[stage]
        assert values - baseline == pytest.approx(100 * night[column].to_numpy())
    assert edges[-1] == pytest.approx(60 * 30 / 3600)
    levels = np.array([4, 2, 1, 0, 3], float)
    true = night["true"].to_numpy()
    expected = np.where(true < 0, np.nan, levels[true])
    assert above.patches[0].get_data().values == pytest.approx(expected, nan_ok=True)


def test_psdnorm_is_shown_before_other_norms(kept):
    assert "PSDNorm" in draw(kept).title


def test_another_norms_nights_are_not_shown_without_saying_what_psdnorms_need(kept):
    assert not draw(kept).missing
    for file in kept.glob("cells/usleep_psd*/predictions.parquet"):
        file.unlink()
    drawing = draw(kept)
    assert "BatchNorm" in drawing.title
    for words in (drawing.caption, *drawing.missing):
        assert words.endswith("PSDNorm kept no predictions (psdnorm lodo --keep predictions).")
    assert len(drawing.missing) == 1


def test_damaged_predictions_are_named_and_other_cohorts_shown(kept):
    broken = kept / "cells" / "usleep_psd_f5_d3_ABC_all_seed0" / "predictions.parquet"
    broken.write_bytes(b"no Parquet")
    drawing = draw(kept)
    assert len(drawing.missing) == 1
    assert str(broken) in drawing.missing[0]
    assert "ABC" not in drawing.words
    assert "MASS" in drawing.words


def test_where_all_are_damaged_it_is_said(kept):
    for file in kept.glob("cells/*/predictions.parquet"):
        file.write_bytes(b"no Parquet")
    with pytest.raises(CannotDraw, match="no predictions can be read") as said:
        draw(kept)
    assert str(said.value).count("Best, median and worst night") == 1


def test_without_predictions_it_is_said_how_to_keep_them(results):
    with pytest.raises(CannotDraw, match="--keep predictions"):
        draw_hypnodensity(contests(results))
