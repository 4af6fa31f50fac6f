"""Writes yasa.json: what YASA says of hypnograms, for ``test_statistics.py``.

Run with YASA installed and PSDNORM_REALDATA set: ``python tests/staging/data/make_yasa.py``.
"""

import json
import os
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np

from psdnorm.constants import STAGES
from psdnorm.io import read_stages

FILE = Path(__file__).with_name("yasa.json")
NAMES = dict(enumerate(STAGES)) | {-1: "UNS"}
STAY = np.array([0.9, 0.75, 0.9, 0.93, 0.93])
NIGHT_S = 79500  # of SC4001's signal


def made_up():
    """Hypnograms by name: chains that stay in a stage for a while, and the awkward ones."""
    nights = {
        "asleep from the first to the last epoch": [2] * 30 + [4] * 11,
        "one epoch of sleep": [0] * 7 + [1] + [0] * 5,
        "no sleep": [0] * 20,
        "asleep and unscored": [-1] * 5 + [0, 2, -1, 2, 0, -1, 3, 3, -1] + [-1] * 4,
    }
    for seed, n_epochs in enumerate((960, 1001, 721, 300, 61, 12)):
        rng = np.random.default_rng(seed)
        stages = [0]
        while len(stages) < n_epochs:
            stays = rng.random() < STAY[stages[-1]]
            stages.append(stages[-1] if stays else int(rng.integers(5)))
        if seed % 2:  # unscored in places
            for epoch in rng.integers(n_epochs, size=n_epochs // 20):
                stages[epoch] = -1
        nights[f"chain {seed}"] = stages
    return nights


def real(folder):
    """The expert's scoring of the real night: all of it, and sleep ± 30 min."""
    scoring = Path(folder) / "sleep-edf" / "SC4001EC-Hypnogram.edf"
    stages = read_stages(scoring, NIGHT_S)
    asleep = np.flatnonzero(stages > 0)
    around = stages[asleep[0] - 60 : asleep[-1] + 61]
    return {"SC4001": stages.tolist(), "SC4001, sleep ± 30 min": around.tolist()}


def yasa_statistics(stages):
    """What YASA says of a whole hypnogram as time in bed; None where it is NaN."""
    import yasa

    hypnogram = yasa.Hypnogram([NAMES[stage] for stage in stages], freq="30s")
    found = hypnogram.sleep_statistics()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # latencies are in the old function alone
        numbers = [stage if stage >= 0 else -2 for stage in stages]
        old = yasa.sleep_statistics(numbers, sf_hyp=1 / 30)
    found |= {name: old[name] for name in ("Lat_N1", "Lat_N2", "Lat_N3", "Lat_REM")}
    counts = hypnogram.transition_matrix()[0]
    order = ["WAKE", "N1", "N2", "N3", "REM"]
    matrix = counts.reindex(index=order, columns=order, fill_value=0).to_numpy().tolist()
    known = {name: None if np.isnan(value) else float(value) for name, value in found.items()}
    return known | {"transitions": matrix}


def main():
    nights = [
        {"name": name, "stages": stages, "yasa": yasa_statistics(stages)}
        for name, stages in made_up().items()
    ]
    # the real night's stages stay where they are
    nights += [
        {"name": name, "yasa": yasa_statistics(stages)}
        for name, stages in real(os.environ["PSDNORM_REALDATA"]).items()
    ]
    lines = ",\n".join(json.dumps(night, ensure_ascii=False) for night in nights)
    text = f'{{"version": "{version("yasa")}", "nights": [\n{lines}\n]}}\n'
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
