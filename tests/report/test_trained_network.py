"""A checkpoint is named as its run was."""

from dataclasses import replace

import pytest
from small_runs import PROTOCOL, RUN, small_store

from psdnorm.report import load_trained
from psdnorm.training import train_run


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_store(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("norm", ["psd", "psd-night-unit", "tma"])
def test_the_arm_of_a_checkpoint_is_that_of_its_run(store, tmp_path, norm):
    run = replace(RUN, norm=norm)
    train_run(store, run, replace(PROTOCOL, max_epochs=1), tmp_path, keep="weights")
    assert load_trained(tmp_path).arm == replace(run.arm, balanced="")
