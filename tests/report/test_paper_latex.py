"""Every number of the shipped tables against the paper's LaTeX, which PSDNORM_PAPER names."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from psdnorm.report.paper import misprints, paper_table, paper_tables

PAPER = Path(os.environ.get("PSDNORM_PAPER", "absent"))
pytestmark = pytest.mark.skipif(
    not PAPER.is_file(), reason="PSDNORM_PAPER does not name the paper's LaTeX"
)

# the tabulars, in the order of the file
TABULARS = (
    "datasets",
    "results",
    "balanced-sizes",
    "cnn-architecture",
    "f1",
    "whitening",
    "cnn-transformer",
    "timing",
    "classwise-batch",
    "classwise-layer",
    "classwise-instance",
    "classwise-tma",
    "classwise-psd",
    "low-data",
    "adabn",
)
SCORES = [n for n in TABULARS if n not in ("datasets", "balanced-sizes", "cnn-architecture")]
LODO = [name for name in SCORES if name != "timing"]
SCORE = re.compile(
    r"(?P<bold>\\mathbf\{)?(?P<value>\d+\.\d+) *(?:_\{)?\\pm (?P<std>[\d.]+|nan)|(?P<nan>\bNaN\b)"
)
NAMES = {"HPAP": "HOMEPAP", "PHYS": "PhysioNet"}
HEADINGS = {
    "batch": "BatchNorm",
    "layer": "LayerNorm",
    "instance": "InstanceNorm",
    "tma": "TMA",
    "psd": "PSDNorm",
    "psd-white": "Whitening",
    "adabn3": "AdaBN(3)",
    "adabn12": "AdaBN(12)",
    "adabnall": "AdaBN(full)",
    "f1_W": "Wake",
    "f1_N1": "N1",
    "f1_N2": "N2",
    "f1_N3": "N3",
    "f1_REM": "REM",
    "weighted_f1": "F1",
}


@pytest.fixture(scope="module")
def text():
    return " ".join(PAPER.read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def tabulars(text):
    """Return the rows of each table: lists of the LaTeX of their cells."""
    bodies = re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", text)
    rows = [[line.split("&") for line in body.split(r"\\")] for body in bodies]
    return dict(zip(TABULARS, rows, strict=True))


def in_print(cell):
    """Return value, ± and whether it is bold, of a cell of LaTeX; as text, where NaN is NaN."""
    match = SCORE.search(cell)
    bold = match["bold"] is not None
    return str((float(match["value"] or "nan"), float(match["std"] or "nan"), bold))


def in_data(row):
    return str((float(row.value), float(row.std), bool(row.bold)))


@pytest.mark.parametrize("name", SCORES)
def test_every_score_is_the_one_in_print(tabulars, name):
    printed = [in_print(cell) for row in tabulars[name] for cell in row if SCORE.search(cell)]
    assert printed == [in_data(row) for row in paper_table(name).rows.itertuples()]


@pytest.mark.parametrize("name", LODO)
def test_rows_are_called_as_in_print(tabulars, name):
    rows = [row for row in tabulars[name] if SCORE.search(row[-1])]
    n_columns = sum(bool(SCORE.search(cell)) for cell in rows[0])
    labels = [row[-n_columns - 1].split()[-1] for row in rows]
    ours = paper_table(name).rows[::n_columns]
    both_means = "Mean(Dataset)" in labels  # a single one is a plain Mean
    names = [NAMES.get(dataset, dataset) for dataset in ours["dataset"]]
    assert labels == (names if both_means else [re.sub(r"Mean\(.*", "Mean", n) for n in names])
    settings = [re.search("All subjects|Balanced@400", row[0]) for row in rows]
    blocks = [match[0] for match in settings if match]
    assert blocks == (["All subjects", "Balanced@400"] if both_means else [])
    if both_means:
        assert ours["balanced"].tolist() == ["all"] * 12 + [400] * 12


@pytest.mark.parametrize("name", LODO)
def test_columns_are_headed_as_in_print(tabulars, name):
    first = next(at for at, row in enumerate(tabulars[name]) if SCORE.search(row[-1]))
    head = re.sub(r"[^\w()=&]", "", "&".join("&".join(row) for row in tabulars[name][:first]))
    rows = paper_table(name).rows
    rows = rows[(rows["dataset"] == "ABC") & (rows["balanced"] == rows["balanced"][0])]
    place = 0
    for row in rows.itertuples():
        if name == "low-data" and row.norm == "psd":
            heading = f"&PSDNorm(F={row.filter_size})"
        else:
            key = row.metric if name.startswith("classwise") else row.norm
            heading = HEADINGS[key]
        found = head.find(heading, place)
        assert found >= 0, (heading, head)
        place = found + 1


def test_times_are_those_of_the_models_and_norms_in_print(tabulars):
    models = {"usleep": "USleep", "cnn-transformer": "CNNTransformer"}
    rows = [row for row in tabulars["timing"] if SCORE.search(row[-1])]
    ours = paper_table("timing").rows
    assert ours["metric"].tolist() == ["train_epoch_s", "inference_s"] * 6
    for printed, row in zip(rows, ours[::2].itertuples(), strict=True):
        assert printed[0].split()[-1] == models[row.model]
        assert printed[1].strip().startswith(HEADINGS[row.norm])


def test_the_cohorts_are_those_in_print(tabulars):
    printed = {row[0].split()[-1]: row[1:] for row in tabulars["datasets"] if len(row) == 5}
    of_data = paper_table("datasets").rows
    assert set(of_data["dataset"]) == set(printed) - {"Dataset"}
    for name, group in of_data.groupby("dataset"):
        numbers = [float(n) for n in re.findall(r"[\d.]+", "&".join(printed[name]))]
        pairs = group[["value", "std"]].to_numpy().ravel()
        assert numbers == pairs[~np.isnan(pairs)].tolist()


def test_balanced_sizes_are_those_in_print(tabulars):
    body = " ".join("&".join(row) for row in tabulars["balanced-sizes"])
    printed = re.findall(r"(\d+|All)(?: subjects)? & (\d+) \$\\pm\$ (\d+)", body)
    assert [(size.lower(), float(n), float(s)) for size, n, s in printed] == [
        (str(row.balanced), row.value, row.std)
        for row in paper_table("balanced-sizes").rows.itertuples()
    ]


def test_shares_of_improved_subjects_are_those_in_the_text(text):
    pattern = r"for (\d+)\\% of subjects against BatchNorm and (\d+)\\%"
    printed = [float(share) for pair in re.findall(pattern, text) for share in pair]
    rows = paper_table("subjects-improved").rows
    assert rows["value"].tolist() == printed
    assert rows["dataset"].tolist() == ["CHAT", "CHAT", "MASS", "MASS"]


@pytest.mark.parametrize(
    ("metric", "pattern"),
    [
        ("convolutions", r"(\d+)-layer sequence of Conv1D"),
        ("transformer_layers", r"\$(\d+)\$ Transformer layers"),
        ("embedding", r"d_\{\\text\{model\}\}\$ is set to (\d+)"),
        ("heads", r"n_\{\\text\{head\}\}\$ to (\d+)"),
        ("epochs", r"\$S\$ is (\d+)"),
    ],
)
def test_sizes_of_the_architecture_are_those_in_print(text, metric, pattern):
    rows = paper_table("cnn-architecture").rows.set_index("metric")
    assert rows.loc[metric, "value"] == float(re.search(pattern, text)[1])


def test_no_labelled_table_is_left_out(text):
    labels = set(re.findall(r"\\label\{(tab:\w+)\}", text))
    assert {paper_table(n).label for n in paper_tables()} - labels == {
        "fig:scatter",
        "app:classwise_performance",
        "app:low_data_regime",
    }
    assert labels <= {paper_table(n).label for n in paper_tables()}
    assert set(paper_tables()) == {*TABULARS, "subjects-improved"}


# a few words of each sentence or caption that a misprint is about
SAID = {
    "results-caption-mean": "mean BACC reports the average over all the subjects",
    "mixed-means": r"79.51\% over subjects, which exceeds BatchNorm (78.38\%)",
    "chat-margin": "outperforms all other normalizations by more than 1 percentage points",
    "gain-over-tma": r"improves score by almost 1\% over TMA",
    "gains-exceed-spread": "gains exceed one standard deviation",
    "training-overhead": r"increase in training time (less than 10\%)",
    "balanced-caption-samples": "Number of samples in the balanced datasets",
    "epoch-half-hour": "takes about 30 min on a single H100",
    "f1-wins-all": "PSDNorm outperforms all other methods on 7 out of 10",
    "f1-baselines-all": "strongest baselines and achieve the best performance on 3 out of 10",
    "f1-wins-400": "outperforms all baselines on 7 datasets",
    "f1-instance-400": "InstanceNorm is never the top performer",
    "whitening-wins": "improves performance on only one dataset (CCSHS)",
    "barycenter-wins": "yields the best results on 6 datasets",
    "cnn-wins": "PSDNorm achieves the best performance on 7 out of 10",
    "cnn-baselines": "best performers on one and two datasets respectively",
    "cnn-gain-batch": "by a margin of 0.9",
    "cnn-gain-instance": "InstanceNorm by 0.54 in average",
    "diagram-worst": "while BatchNorm performs the worst",
    "classwise-layer-filter": r"LayerNorm layer with $\filtersize=5$",
    "classwise-best": "consistently the best performing normalization across all classes",
    "classwise-gains": "except for N1 where InstanceNorm shows a decrease",
    "low-data-chat": r"more than 10\% in BACC compared to other normalization layers for CHAT",
    "adabn-against-tma": "consistently underperforms compared to TMA",
    "adabn-against-psd": "consistently outperforms AdaBN across all datasets",
    "adabn-more-layers": "increasing the number of adapted BN layers further degrades",
}


def test_every_misprint_of_text_and_captions_is_in_the_paper(text):
    assert {m.name for m in misprints() if m.place != "table"} == set(SAID)
    assert [name for name, words in SAID.items() if words not in text] == []
