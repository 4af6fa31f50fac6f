"""Small stores, and large indexes without signals, that the tests of several rooms share."""

import os

import numpy as np

from psdnorm.store import Layout, Night, Store
from psdnorm.store.folder import night_path
from psdnorm.store.night import encode_head

RECIPE = {"name": "robust", "low_pass_hz": 30, "clip": 20.0}
LAYOUT = Layout(n_channels=2, n_times=30, sfreq=1.0)


def night(recording="abc-1", n_epochs=50, *, seed=0, layout=LAYOUT, **known):
    """A night of noise in which every epoch's first sample is its number, for tests to tell."""
    rng = np.random.default_rng([seed, n_epochs, *recording.encode()])
    signals = rng.standard_normal((n_epochs, layout.n_channels, layout.n_times), dtype=np.float32)
    signals[:, :, 0] = np.arange(n_epochs)[:, None]
    # exactly what half precision holds, so that what is read can be compared with ==
    signals = signals.astype(np.float16).astype(np.float32)
    cohort, _, subject = recording.partition("-")
    known = {"cohort": cohort, "subject": subject, "source": f"{recording}.edf"} | known
    known.setdefault("stages", rng.integers(-1, 5, n_epochs))
    return Night(recording, signals=signals, **known)


def filled(path, nights, layout=LAYOUT):
    store = Store.create(path, RECIPE, layout)
    for each in nights:
        store.add(each)
    store.finish()
    return Store.open(path)


def sparse(path, n_recordings, n_cohorts=10, layout=None):
    """A store with true heads and no signals: files that take no room but for their first page."""
    store = Store.create(path, RECIPE, layout)
    layout, rng = store.layout, np.random.default_rng(0)
    for number in range(n_recordings):
        record = {
            "recording": f"night-{number:05}",
            "cohort": f"cohort-{number % n_cohorts}",
            "subject": str(number // n_cohorts // 2),  # two nights each
            "visit": str(number // n_cohorts % 2),
            "family": f"f{number // n_cohorts // 4}" if number % n_cohorts == 0 else None,
            "channels": "C3-A2;C4-A1",
            "flags": "",
            "source": f"night-{number:05}.edf",
            "checksum": f"{number:064x}",
            "sex": "FM"[number % 2],
            "age": 40.0,
            "simulated": True,
            "recipe": store.hash,
        }
        stages = rng.integers(-1, 5, 800 + number % 400, dtype=np.int8)
        shape = (len(stages), layout.n_channels, layout.n_times)
        head = encode_head(record, "0" * 64, stages, shape, layout.dtype)
        target = night_path(store.path, record["recording"])
        target.write_bytes(head)
        n_bytes = int(np.prod(shape)) * np.dtype(layout.dtype).itemsize
        os.truncate(target, len(head) + n_bytes)
    return store


def tree(folder):
    """Every file below a folder, with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
