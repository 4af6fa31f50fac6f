"""The benchmark of whole models has a row for each model and norm."""

import csv
import os
import signal

import pytest
import torch


@pytest.fixture
def step(from_benchmarks, monkeypatch):
    step = from_benchmarks("step")
    monkeypatch.setattr(step, "NIGHT", 40)
    monkeypatch.setattr(step, "N_TIMES", 60)
    monkeypatch.setattr(step, "REPEATS", 1)
    monkeypatch.setattr(step, "WARM_UP", 1)
    small = {"n_times": 60, "sfreq": 100}
    models = {
        "U-Sleep": lambda norm: step.USleep(**small, depth=3, norm=norm),
        "CNNTransformer": lambda norm: step.CNNTransformer(
            **small, channels=(8, 16), strides=(3, 5), n_heads=2, norm=norm
        ),
    }
    monkeypatch.setattr(step, "MODELS", models)
    threads = torch.get_num_threads()
    yield step
    torch.set_num_threads(threads)


def test_every_model_and_norm_stages_a_night(step, tmp_path):
    table = tmp_path / "step.csv"
    assert step.main(["--device", "cpu", "--csv", str(table)]) == 0
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len({(row["model"], row["norm"]) for row in rows}) == 10
    assert all(float(row["night_s"]) > 0 for row in rows)
    assert all(row["overhead_over_batchnorm"].endswith("%") for row in rows)


def test_what_was_measured_before_a_sigterm_is_written(step, monkeypatch, tmp_path):
    def rows(cases):
        yield {"model": "U-Sleep", "norm": "batch", "mode": "eager", "night_s": "1.0"}
        os.kill(os.getpid(), signal.SIGTERM)  # as of `timeout`, or of a scheduler
        yield {"model": "U-Sleep", "norm": "psd", "mode": "eager", "night_s": "2.0"}

    monkeypatch.setattr(step, "night_rows", rows)
    with pytest.raises(KeyboardInterrupt):
        step.main(["--device", "cpu", "--csv", str(tmp_path / "step.csv")])
    with (tmp_path / "step.csv").open() as file:
        assert [row["norm"] for row in csv.DictReader(file)] == ["batch"]


def test_a_copy_without_history_is_told_its_commit(step, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PSDNORM_COMMIT", "abc1234")
    assert step.environment("cpu")["commit"] == "abc1234"


def test_the_overhead_is_that_over_batchnorm_in_the_same_model_and_mode(step):
    rows = [
        {"model": "A", "norm": "batch", "mode": "fast", "step_ms": "10"},
        {"model": "A", "norm": "psd", "mode": "fast", "step_ms": "10.2"},
        {"model": "B", "norm": "psd", "mode": "fast", "step_ms": "30"},
    ]
    step.with_overhead(rows)
    assert [row.get("overhead_over_batchnorm") for row in rows] == ["+0.0%", "+2.0%", None]


def test_a_training_step_learns(step):
    torch.manual_seed(0)
    model = step.MODELS["U-Sleep"]("psd")
    before = [parameter.detach().clone() for parameter in model.parameters()]
    step.training_step(model, model, torch.randn(2, 35, 2, 60))()
    after = list(model.parameters())
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--batch", "0"], "'0' is not a number from 1 on"),
        (["--device", "cpu", "--modes", "fast"], "--modes fast needs a CUDA device"),
        (["--csv", "nowhere/step.csv"], "is in a folder that does not exist"),
    ],
)
def test_a_wrong_argument_is_named_before_anything_is_measured(step, arguments, complaint, capsys):
    with pytest.raises(SystemExit):
        step.main(arguments)
    assert complaint in capsys.readouterr().err


def test_a_process_that_dies_is_a_failed_row(step, monkeypatch, tmp_path):
    here, there = step.multiprocessing.Pipe()
    there.close()
    assert step._answer(here, "measure") == {"failed": "its process died"}
    failed = {"model": "A", "norm": "batch", "mode": "eager", "failed": "its process died"}
    monkeypatch.setattr(step, "night_rows", lambda cases: iter([failed]))
    table = tmp_path / "step.csv"
    assert step.main(["--device", "cpu", "--csv", str(table)]) == 1
    assert len(table.read_text().splitlines()) == 1  # the header


def test_what_computes_something_else_is_not_timed(step):
    torch.manual_seed(0)
    model, x = step.MODELS["U-Sleep"]("psd"), torch.randn(2, 35, 2, 60)
    step.check_parity(model, model, x)
    with pytest.raises(RuntimeError, match=r"off by 0\.2 of their size: not timed"):
        step.check_parity(model, lambda x: 1.2 * model(x), x)
