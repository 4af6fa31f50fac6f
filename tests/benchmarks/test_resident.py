"""The benchmark of rows on the chip says what it cannot do."""

import pytest
import torch


@pytest.fixture
def resident(from_benchmarks):
    return from_benchmarks("resident")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "on CUDA devices of compute capability 9, found none"),
        (["--filter-sizes", "5", "4"], "--filter-sizes 4 is not one of 1, 2, 5, 8, 12, 17"),
        (["--csv", "nowhere/resident.csv"], "is in a folder that does not exist"),
    ],
)
def test_what_it_cannot_do_is_one_sentence(resident, arguments, said, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="2"):
        resident.main(arguments)
    assert said in capsys.readouterr().err
