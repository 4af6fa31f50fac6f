"""The benchmark times what is right, and refuses what is not."""

import csv

import pytest
import torch


@pytest.fixture
def norms(from_benchmarks, monkeypatch):
    norms = from_benchmarks("norms")
    shapes = from_benchmarks("shapes")
    monkeypatch.setattr(shapes, "CPU", [shapes.Case("small", (2, 3, 400), 5)])
    monkeypatch.setattr(norms, "REPEATS", 1)
    threads = torch.get_num_threads()
    yield norms
    torch.set_num_threads(threads)


def test_every_norm_and_phase_has_a_row(norms, tmp_path):
    table = tmp_path / "norms.csv"
    assert norms.main(["--device", "cpu", "--csv", str(table)]) == 0
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["norm"], row["phase"]) for row in rows} == {
        (norm, phase)
        for norm in ("BatchNorm1d", "InstanceNorm1d", "PSDNorm")
        for phase in norms.PHASES
    }
    assert all(float(row["ms"]) > 0 for row in rows)


def test_a_layer_that_computes_something_else_is_not_timed(norms, tmp_path, monkeypatch, capsys):
    made = norms.layers

    def broken(case, device, backend, *options):
        layers = made(case, device, backend, *options)
        if backend != "reference":
            layers["PSDNorm"] = torch.nn.Identity()
        return layers

    monkeypatch.setattr(norms, "layers", broken)
    table = tmp_path / "norms.csv"
    assert norms.main(["--device", "cpu", "--csv", str(table)]) == 1
    assert "not timed" in capsys.readouterr().err
    assert len(table.read_text().splitlines()) == 1  # the header


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--csv", "."], "--csv . is a folder, not a file"),
        (["--csv", "nowhere/norms.csv"], "is in a folder that does not exist"),
        (["--backend", "foo"], "invalid choice: 'foo'"),
        (["--modes", "banana"], "invalid choice: 'banana'"),
        (["--only", "nothing"], "--only 'nothing' matches no case"),
    ],
)
def test_wrong_arguments_are_named(norms, capsys, arguments, said):
    with pytest.raises(SystemExit):
        norms.main(["--device", "cpu", *arguments])
    assert said in capsys.readouterr().err


def test_rows_on_the_chip_are_fewer_passes_unless_the_reference_serves(norms, monkeypatch):
    monkeypatch.setattr(norms.hopper, "serves", lambda *_: True)
    x = torch.zeros(1, 3, 400)
    for backend, expected in (("auto", 6), ("reference", 8)):
        layer = norms.PSDNorm(3, 5, backend=backend)
        assert norms.passes("PSDNorm", layer, "forward + backward", x, x) == expected
    assert norms.passes("BatchNorm1d", torch.nn.BatchNorm1d(3), "eval", x, x) == 2
