"""Numbers that are not finite: where they come from, in a sentence."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from psdnorm.errors import TrainingError
from psdnorm.store import Store, night_path
from psdnorm.training.predict import NightPrediction

if TYPE_CHECKING:
    import pandas as pd

_AT_A_TIME = 64  # epochs of a night in memory


class NotFiniteError(TrainingError):
    """A loss, a weight or a prediction is not finite."""


def origin(store: Store, recordings: Iterable[str]) -> str:
    """Say which night has samples that are not finite; how to look further if none has.

    Parameters
    ----------
    store : Store
    recordings : iterable of str
        Those that were used. They are read as they are on disk, in this order.

    Returns
    -------
    str
        The end of a sentence.
    """
    nights = Store(store.path, store.recipe, store.layout)  # not what TMA makes of them
    for recording in recordings:
        epoch = _first_bad_epoch(nights, recording)
        if epoch is not None:
            path = night_path(store.path, recording)
            return f"{path} has samples that are not finite, from epoch {epoch} on: prepare it anew"
    return (
        f"the samples of all nights that were used are finite; psdnorm inspect {store.path} "
        "--verify tells whether they are what was prepared"
    )


def finite_predictions(
    store: Store, index: "pd.DataFrame", predictions: Iterable[NightPrediction]
) -> Iterator[NightPrediction]:
    """Yield predictions as they come; refuse one that is not finite.

    Parameters
    ----------
    store : Store
    index : DataFrame
        The nights that are predicted.
    predictions : iterable of NightPrediction
    """
    recordings = index["recording"].tolist()
    for prediction in predictions:
        if not np.isfinite(prediction.probabilities).all():
            recording = recordings[prediction.night]
            others = (other for other in recordings if other != recording)
            raise NotFiniteError(
                f"the predictions of {recording} are not finite; "
                f"{origin(store, (recording, *others))}"
            )
        yield prediction


def _first_bad_epoch(store: Store, recording: str) -> int | None:
    signals = store.signals(recording)
    for first in range(0, len(signals), _AT_A_TIME):
        is_good = np.isfinite(signals[first : first + _AT_A_TIME]).all(axis=(1, 2))
        if not is_good.all():
            return first + int(np.argmin(is_good))
    return None
