"""Several processes learn what one would."""

from dataclasses import replace

import pandas as pd
import pytest
from small_runs import PROTOCOL, RUN, learn_with_one_batch_norm

from psdnorm.errors import ArgumentError, TrainingError
from psdnorm.models import from_pretrained
from psdnorm.training import Silent, train_run
from psdnorm.training import train as runs

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["psd", "psd-night"])
def test_two_processes_that_share_every_batch_learn_what_one_does(
    store, tmp_path, monkeypatch, norm
):
    monkeypatch.setattr(runs, "learn", learn_with_one_batch_norm)
    histories, weights = [], []
    for n in (1, 2):
        folder = tmp_path / str(n)
        run = replace(RUN, norm=norm)
        train_run(store, run, PROTOCOL, folder, device="cpu", devices=n, keep="weights")
        histories.append(pd.read_csv(folder / "history.csv"))
        weights.append(from_pretrained(folder / "weights").state_dict())
    pd.testing.assert_frame_equal(*histories, check_exact=False, rtol=1e-4)
    for name, value in weights[0].items():
        assert (value - weights[1][name]).abs().max() < 1e-2 * max(1, value.abs().max()), name


@pytest.mark.slow
def test_what_goes_wrong_in_another_process_is_one_sentence_too(store, tmp_path):
    nights = store.index["recording"]
    broken = store.path / "nights" / f"{nights[nights.str.startswith('mno')].iloc[0]}.safetensors"
    whole = broken.read_bytes()
    try:
        broken.write_bytes(whole[:-100])
        with pytest.raises(TrainingError, match=r"^\S*safetensors is truncated"):
            train_run(store, RUN, PROTOCOL, tmp_path, device="cpu", devices=2)
    finally:
        broken.write_bytes(whole)


def test_devices_that_are_not_there_are_counted(store, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ArgumentError, match="devices is 2, found 1 CUDA devices"):
        train_run(store, RUN, PROTOCOL, tmp_path, device="cuda", devices=2)
    with pytest.raises(ArgumentError, match="device is 'cuda:3', found 1 CUDA devices"):
        train_run(store, RUN, PROTOCOL, tmp_path, device="cuda:3")


@pytest.mark.gpu
class TestOnTheDevice:
    @pytest.mark.parametrize("norm", ["psd", "psd-night-unit", "tma"])
    def test_it_learns_what_a_processor_learns(self, store, tmp_path, norm):
        histories = []
        for device in ("cpu", "cuda"):
            run = replace(RUN, norm=norm)
            train_run(store, run, PROTOCOL, tmp_path / device, device=device, fast=False)
            histories.append(pd.read_csv(tmp_path / device / "history.csv"))
        pd.testing.assert_frame_equal(*histories, check_exact=False, rtol=1e-3)

    def test_interrupted_it_goes_on_from_where_it_was(self, store, tmp_path):
        class Stopping(Silent):
            def end_epoch(self, row):
                raise KeyboardInterrupt

        folders = tmp_path / "whole", tmp_path / "stopped"
        with pytest.raises(KeyboardInterrupt):
            train_run(store, RUN, PROTOCOL, folders[1], fast=False, watcher=Stopping())
        histories = []
        for folder in folders:
            train_run(store, RUN, PROTOCOL, folder, fast=False)
            histories.append(pd.read_csv(folder / "history.csv"))
        pd.testing.assert_frame_equal(*histories, check_exact=False, rtol=1e-4)
