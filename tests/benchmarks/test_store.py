"""The benchmark of the store has a row for each way of reading and each step of setting up."""

import csv

import pytest


@pytest.fixture
def store(from_benchmarks, monkeypatch):
    store = from_benchmarks("store")
    small = {"N_NIGHTS": 2, "N_EPOCHS": 800, "N_TIMES": 20, "N_RECORDINGS": 40, "N_BATCHES": 1}
    for name, value in small.items():
        monkeypatch.setattr(store, name, value)
    return store


def test_every_residence_and_step_has_a_row(store, tmp_path, monkeypatch):
    table = tmp_path / "store.csv"
    monkeypatch.setattr(store, "_misses", lambda *_: False)  # timings are no business of a test
    assert store.main(["--device", "cpu", "--csv", str(table), "--folder", str(tmp_path)]) == 0
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["dtype"], row["residence"]) for row in rows if row["dtype"]} == {
        (dtype, residence) for dtype in ("float16", "float32") for residence in store.RESIDENCES
    }
    assert [row["what"] for row in rows if not row["dtype"]] == [
        "index from heads", "index from Parquet", "splits", "samplers", "set-up in all",
    ]  # fmt: skip
    assert all(float(row["ms"]) > 0 for row in rows)
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_no_copy_is_timed_while_a_loader_reads_ahead(store, tmp_path, monkeypatch):
    happened = []
    epoch_of, ms_of = store.Loader.epoch, store._ms

    def epoch(self, *arguments):
        yield from epoch_of(self, *arguments)
        happened.append("the epoch has ended")

    def ms(run, device):
        happened.append("timed")
        return ms_of(run, device)

    monkeypatch.setattr(store.Loader, "epoch", epoch)
    monkeypatch.setattr(store, "_ms", ms)
    next(store.time_reading(tmp_path, "cpu"))
    assert happened[:3] == ["the epoch has ended", "timed", "the epoch has ended"]
    assert set(happened[3:]) == {"timed"}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_batches_on_a_gpu_are_compared_with_a_transfer_too(store, tmp_path, device):
    rows = list(store.time_reading(tmp_path, device))
    peers = ["share_of_copy"] + ["share_of_transfer"] * (device == "cuda")
    for row in rows:
        assert [name for name in row if name.startswith("share_of")] == peers
        assert set(row) <= set(store.COLUMNS)


@pytest.mark.parametrize(
    ("row", "misses"),
    [
        ({"what": "batch", "dtype": "float16", "residence": "map", "share_of_copy": "0.49"}, True),
        ({"what": "batch", "dtype": "float16", "residence": "map", "share_of_copy": "0.51"}, False),
        ({"what": "set-up in all", "ms": "10001", "peak_gb": "1"}, True),
        ({"what": "set-up in all", "ms": "9999", "peak_gb": "2.1"}, True),
        ({"what": "set-up in all", "ms": "9999", "peak_gb": "1.9"}, False),
    ],
)
def test_a_bar_that_is_missed_is_told(store, row, misses):
    assert store._misses(row, "cpu") is misses
