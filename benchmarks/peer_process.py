"""One stager in a process of its own, which :mod:`benchmarks.peers` starts.

It loads, stages the crop twice by the clock, and leaves what it found as JSON. All get the same
MNE Raw, which is in memory already.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import band_powers
from psdnorm.constants import EPOCH_S

EEG, EOG = ("EEG Fpz-Cz", "EEG Pz-Oz"), "EOG horizontal"
YASA_STAGES = ("WAKE", "N1", "N2", "N3", "REM")


class Stager(NamedTuple):
    """A stager that is ready.

    Attributes
    ----------
    release : str
        Which one it is.
    learned_from, saw : str
        What it was fitted to, and what it was shown for its scores.
    stage : callable
        From a Raw to stages, (E,), 0…4.
    stage_whole : callable or None
        From the path of the whole recording to its stages, if these are to be scored.
    """

    release: str
    learned_from: str
    saw: str
    stage: Callable[[Any], Sequence[int]]
    stage_whole: Callable[[Path], Sequence[int]] | None = None


def load_psdnorm(model: str | None) -> Stager:
    """Load a model of ours, by default the one in the box."""
    from psdnorm.staging import load_model, stage

    loaded = load_model(model)
    return Stager(
        loaded.description["name"],
        training_of(loaded.network.card),
        "Fpz-Cz and Pz-Oz, the whole recording",
        lambda raw: stage(raw, loaded, device="cpu").hypnogram.tolist(),
        lambda path: stage(path, loaded, device="cpu").hypnogram.tolist(),
    )


def training_of(card: dict[str, Any] | None) -> str:
    """Return what a checkpoint says of the nights it was trained on."""
    facts = (card or {}).get("training_data")
    if not isinstance(facts, dict) or "nights" not in facts:
        return "it does not say what"
    kinds = {True: "simulated nights", False: "real nights", None: "nights"}
    return f"{facts['nights']} {kinds[facts.get('simulated')]}"


def load_yasa() -> Stager:
    """Load YASA, which sees the one channel that it is made for."""
    import yasa

    def stage(raw: Any) -> list[int]:
        found = yasa.SleepStaging(raw, eeg_name=EEG[0]).predict()
        return [YASA_STAGES.index(name) for name in found.hypno]

    return Stager(
        f"yasa {version('yasa')}", "about 3,000 real nights", "Fpz-Cz, the 841 epochs", stage
    )


def load_gssc() -> Stager:
    """Load GSSC, which asks all channels, alone and in pairs."""
    from gssc.infer import EEGInfer

    network = EEGInfer(use_cuda=False)

    def stage(raw: Any) -> list[int]:
        stages, _ = network.mne_infer(raw, eeg=list(EEG), eog=[EOG])
        return stages.tolist()

    return Stager(
        f"gssc {version('gssc')}",
        "thousands of real nights",
        "Fpz-Cz, Pz-Oz and EOG, the 841 epochs",
        stage,
    )


def load_band_power() -> Stager:
    """Fit the baseline."""
    nights = band_powers.simulated_nights()
    powers = [band_powers.features(night.signal, night.sfreq) for night in nights]
    model = band_powers.classifier(nights, powers)

    def stage(raw: Any) -> list[int]:
        signal_uv = 1e6 * raw.get_data(picks=list(EEG))
        return model.predict(band_powers.features(signal_uv, raw.info["sfreq"])).tolist()

    return Stager(
        "logistic regression",
        f"{len(nights)} simulated nights",
        "Fpz-Cz and Pz-Oz, each of the 841 epochs alone",
        stage,
    )


LOADERS = {"yasa": load_yasa, "gssc": load_gssc, "band-power": load_band_power}


def read_crop(path: Path, first: int, last: int) -> Any:
    """Read the epochs from first to before last, of the channels that anybody here looks at."""
    import mne

    raw = mne.io.read_raw_edf(path, include=[*EEG, EOG], verbose="ERROR")
    raw.set_channel_types({EOG: "eog"}, verbose="ERROR")
    # with the sample after the last, if there is one: GSSC leaves the last epoch out otherwise
    end_s = min(EPOCH_S * last, raw.times[-1])
    return raw.crop(EPOCH_S * first, end_s).load_data(verbose="ERROR")


def timed(stager: Stager, raw: Any) -> tuple[float, list[int]]:
    """Return the seconds that a call takes, and its stages."""
    own = raw.copy()  # GSSC filters what it is given
    begin = time.perf_counter()
    stages = stager.stage(own)
    return time.perf_counter() - begin, list(stages)


def main(arguments: list[str] | None = None) -> None:
    """Load a stager, time it and write what it found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=["psdnorm", *LOADERS])
    parser.add_argument("recording", type=Path)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model")
    chosen = parser.parse_args(arguments)
    stager = load_psdnorm(chosen.model) if chosen.peer == "psdnorm" else LOADERS[chosen.peer]()
    crop = read_crop(chosen.recording, chosen.first, chosen.last)
    first_s, stages = timed(stager, crop)
    second_s, again = timed(stager, crop)
    if stages != again:
        changed = np.count_nonzero(np.not_equal(stages, again))
        raise RuntimeError(f"{chosen.peer} gives {changed} epochs another stage when asked again")
    if stager.stage_whole is not None:
        stages = list(stager.stage_whole(chosen.recording)[chosen.first : chosen.last])
    words = {"release": stager.release, "learned_from": stager.learned_from, "saw": stager.saw}
    found = words | {"first_s": first_s, "second_s": second_s, "stages": stages}
    chosen.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
