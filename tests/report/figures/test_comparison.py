"""Norms are compared at one setting each, and what is left out is named."""

import pytest
from experiments import write_runs

from psdnorm.report.figures.comparison import comparisons
from psdnorm.report.results import read_results
from psdnorm.training.grid import Axes

ONE = {"hold_outs": ("ABC",), "seeds": (0,)}


@pytest.fixture
def compared(tmp_path):
    def compare(*axes):
        write_runs(tmp_path, list(axes))
        return comparisons(read_results(tmp_path))

    return compare


def test_each_model_and_size_is_a_comparison_of_its_own(compared):
    found = compared(
        Axes(norms=("batch",), balanced=(40, 400, None), **ONE),
        Axes(models=("cnn-transformer",), norms=("batch",), balanced=(400,), **ONE),
    )
    assert [each.setting for each in found] == [
        "U-Sleep, all subjects",
        "U-Sleep, balanced@400",
        "U-Sleep, balanced@40",
        "CNNTransformer, balanced@400",
    ]
    assert len({each.key for each in found}) == 4


def test_a_norm_is_compared_at_the_protocols_setting_and_others_are_named(compared):
    (found,) = compared(
        Axes(norms=("batch", "psd"), filter_sizes=(1, 5, 17), **ONE),
        Axes(norms=("psd",), norm_depths=(1,), **ONE),
    )
    assert found.labels == {"batch": "BatchNorm", "psd": "PSDNorm"}
    assert set(found.results.of(norm="psd").cells["arm"]) == {"usleep psd f5 d3 @all"}
    assert found.left_out == ["PSDNorm with f = 1, 1 block and f = 17 is left out."]


def test_another_setting_is_compared_where_there_is_no_other_and_its_name_says_so(compared):
    (found,) = compared(Axes(norms=("batch", "psd"), filter_sizes=(17,), **ONE))
    assert found.labels["psd"] == "PSDNorm (f = 17)"


def test_norms_are_in_the_order_of_the_paper(compared):
    norms = ("psd", "psd-white", "tma", "adabn3", "adabn5", "instance", "layer", "batch")
    (found,) = compared(Axes(norms=norms, **ONE))
    assert list(found.labels.values()) == [
        "BatchNorm",
        "AdaBN(3)",
        "LayerNorm",
        "InstanceNorm",
        "TMA",
        "PSDNorm-white",
        "PSDNorm",
        "AdaBN(5)",
    ]
