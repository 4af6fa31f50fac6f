"""The benchmark of norms on unseen domains, on small made windows: classes are frequencies."""

import csv
import json
import re

import numpy as np
import pytest
import torch

import psdnorm
from psdnorm import TMA

SMALL = """
network: {channels: [4, 6], kernel_size: 5, pool: 2}
psdnorm: {momentum: 0.05, affine: true, eps: 0.00001, eps_mode: absolute}
tma: {filter_size: 64}
optimiser: {weight_decay: 0.01, warm_up_steps: 2}
steps: 6
batch: {n_domains: 3, n_windows: 8}
selection: {learning_rates: [0.01, 0.03], held_out: 0.25, seeds: 1}
seeds: 2
adaptation: {windows: 6, draws: 1, arriving: 10}
bootstrap: {draws: 200, confidence: 0.95}
"""
FEW = "batch,adabn,psd-domain-5-unit"
MORE = f"{FEW},tma-adabn,psd-row-5,psd-domain-1-unit-centred"


@pytest.fixture
def domains(from_benchmarks):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield from_benchmarks("domains")
    torch.set_num_threads(threads)


def made(spoil_target=False):
    """Two sites, the first with four sensors, the second with two; a gain for each sensor."""
    rng = np.random.default_rng(0)
    keys = [(site, s) for site, n in (("north", 4), ("south", 2)) for s in range(1, n + 1)]
    x, y, sites, sensors = [], [], [], []
    for site, sensor in keys:
        for label in np.repeat(np.arange(3), 7):
            wave = np.sin((0.3 + 0.5 * label) * np.arange(40) + rng.uniform(0, 6, (2, 1)))
            x.append(sensor * (wave + 0.5 * rng.standard_normal((2, 40))))
            y.append(label)
            sites.append(site)
            sensors.append(sensor)
    arrays = {"x": np.array(x, np.float16), "y": np.array(y, np.int8)}
    arrays |= {"site": np.array(sites), "sensor": np.array(sensors)}
    arrays["classes"] = np.array(["low", "middle", "high"])
    if spoil_target:
        target = arrays["site"] == "south"
        arrays["x"][target] = 50 * rng.standard_normal(arrays["x"][target].shape)
        arrays["y"][target] = rng.permutation(arrays["y"][target])
    return arrays


@pytest.fixture
def command(domains, tmp_path):
    """Run the benchmark; return its exit code."""
    (tmp_path / "small.yaml").write_text(SMALL)

    def run(*changes, arrays=None, out="out", only=FEW):
        np.savez(tmp_path / "made.npz", **(arrays or made()))
        arguments = [str(tmp_path / "made.npz"), "--domain", "site,sensor", "--device", "cpu"]
        arguments += ["--train", "site=north", "--test", "site=south", "--only", only]
        arguments += ["--out", str(tmp_path / out), "--settings", str(tmp_path / "small.yaml")]
        return domains.main([*arguments, *changes])

    return run


def lines(folder):
    return [json.loads(line) for line in (folder / "trainings.jsonl").read_text().splitlines()]


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def outcomes(folder):
    return {name: (folder / name).read_bytes() for name in ("results.csv", "adaptation.csv")}


@pytest.fixture
def trained_jobs(domains, monkeypatch):
    """Every training that begins."""
    jobs = []
    train = domains.Work.trained

    def noted(self, job, split):
        jobs.append(job)
        return train(self, job, split)

    monkeypatch.setattr(domains.Work, "trained", noted)
    return jobs


# ─── the whole command ───


def test_every_method_has_a_row_and_those_that_saw_nothing_come_first(command, tmp_path, capsys):
    assert command("--note", "Sensors are made up.", only=MORE) == 0
    rows = table(tmp_path / "out" / "results.csv")
    assert {row["method"] for row in rows} == set(MORE.split(","))
    saw = [row["saw"] for row in rows]
    assert saw == ["nothing"] * 2 + ["unlabelled windows"] * 4
    for row in rows:
        assert float(row["score_low"]) <= float(row["score"]) <= float(row["score_high"])
        assert float(row["learning_rate"]) in (0.01, 0.03)
    for name in ("results.md", "index.html"):
        text = (tmp_path / "out" / name).read_text()
        assert "Sensors are made up." in text
        assert "PSDNorm by domain, f = 5, unit power" in text
    assert "| PSDNorm by row, f = 5 | nothing |" in capsys.readouterr().out


def test_nothing_is_chosen_on_the_target(domains, command, tmp_path, monkeypatch):
    weights = {}
    train = domains.Work.trained

    def noted(self, job, split):
        model = train(self, job, split)
        state = [value.clone() for value in model.state_dict().values()]
        weights.setdefault(job, []).append(state)
        return model

    monkeypatch.setattr(domains.Work, "trained", noted)
    for name in ("as-is", "spoilt"):
        command(out=name, arrays=made(spoil_target=name == "spoilt"), only=MORE)
    chosen = []
    for name in ("as-is", "spoilt"):
        chosen.append([line for line in lines(tmp_path / name) if line["is_selection"]])
        for line in chosen[-1]:
            for changing in ("digest", "training_s", "testing_s"):
                line.pop(changing)
            assert all(d.startswith("north") for own in line["scores"].values() for d in own)
    assert chosen[0] == chosen[1]
    rows = [table(tmp_path / name / "results.csv") for name in ("as-is", "spoilt")]
    for what in ("learning_rate", "source_score", "chosen_on_source"):
        found = [{row["method"]: row[what] for row in own} for own in rows]
        assert found[0] == found[1]
    assert [row["score"] for row in rows[0]] != [row["score"] for row in rows[1]]
    # the same trainings, to the same networks
    for first, second in weights.values():
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_finished_command_trains_nothing_again(command, trained_jobs, tmp_path):
    command()
    n, before = len(trained_jobs), outcomes(tmp_path / "out")
    assert n == len(set(trained_jobs)) >= 2 * 2 + 2 * 2
    assert command() == 0
    assert len(trained_jobs) == n
    assert outcomes(tmp_path / "out") == before


def test_a_killed_command_resumes_after_its_last_whole_line(command, trained_jobs, tmp_path):
    command()
    n, before = len(trained_jobs), outcomes(tmp_path / "out")
    path = tmp_path / "out" / "trainings.jsonl"
    content = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(content[:-2]) + content[-2][:50])
    assert command() == 0
    assert len(trained_jobs) == n + 2
    assert outcomes(tmp_path / "out") == before


def test_ctrl_c_keeps_what_is_finished(
    domains, command, trained_jobs, tmp_path, monkeypatch, capsys
):
    run = domains.Work.__call__

    def interrupted(self, job):
        if len(trained_jobs) == 3:
            raise KeyboardInterrupt
        return run(self, job)

    with monkeypatch.context() as patch:
        patch.setattr(domains.Work, "__call__", interrupted)
        assert command() == 130
    assert "run the same command again to resume" in capsys.readouterr().err
    assert len(lines(tmp_path / "out")) == 3
    assert command() == 0
    assert len(trained_jobs) == len(set(trained_jobs))


def test_another_file_or_other_settings_are_other_trainings(command, trained_jobs, tmp_path):
    command(only="batch")
    n = len(trained_jobs)
    arrays = made()
    arrays["x"][0, 0, 0] += 1
    command(only="batch", arrays=arrays)
    assert len(trained_jobs) == 2 * n
    (tmp_path / "small.yaml").write_text(SMALL.replace("steps: 6", "steps: 5"))
    command(only="batch")
    assert len(trained_jobs) == 3 * n


def test_more_seeds_need_only_the_new_trainings(command, trained_jobs, tmp_path):
    command(only="batch")
    n = len(trained_jobs)
    (tmp_path / "small.yaml").write_text(SMALL.replace("seeds: 2", "seeds: 3"))
    command(only="batch")
    assert len(trained_jobs) == n + 1


@pytest.mark.slow
def test_processes_give_what_one_process_gives(command, tmp_path):
    command()
    assert command("--jobs", "2", out="two") == 0
    assert outcomes(tmp_path / "out") == outcomes(tmp_path / "two")


def test_where_eps_outweighs_the_signal_the_page_says_so(command, tmp_path):
    (tmp_path / "small.yaml").write_text(SMALL.replace("eps: 0.00001", "eps: 1.0"))
    assert command(only="batch,psd-domain-5-unit") == 0
    text = (tmp_path / "out" / "results.md").read_text()
    assert "in a layer of: PSDNorm by domain, f = 5, unit power." in text


def test_any_model_can_be_used(command, tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text(
        "from torch import nn\n"
        "def tiny(n_channels, n_classes, n_times, norm):\n"
        "    assert (n_channels, n_classes, n_times) == (2, 3, 40)\n"
        "    norms = norm(5), norm(5, depth=1)\n"
        "    return nn.Sequential(nn.Conv1d(2, 5, 3), *norms, nn.Flatten(), nn.Linear(190, 3))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert command("--model", "my_models:tiny") == 0
    assert len(table(tmp_path / "out" / "results.csv")) == 3


# ─── wrong arguments and files ───


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["--domain", "room"], "--domain: the file has no key 'room', found site and sensor"),
        (["--train", "room=1"], "--train: the file has no key 'room'"),
        (["--train", "sensor"], "--train sensor: expected KEY=VALUES, as in subject=1-20,25"),
        (["--train", "sensor=1,9"], "--train sensor=1,9: no window has sensor 9"),
        (["--train", "sensor=7-9"], "no window has sensor 7-9"),
        (["--train", "site=south"], "--train has site twice"),
        (["--test", "sensor=4"], "--test site=south sensor=4: no window has all of these"),
        (["--train", "sensor=2"], "--train has one domain, expected at least two"),
        (["--domain", "sensor"], "2 domains in both --train and --test, such as '1'"),
        (["--only", "batch,foo*"], "--only foo*: expected one of batch, layer"),
        (["--model", "nothing"], "--model nothing: expected module:function"),
        (["--model", "benchmarks.domains:nothing"], "has no attribute 'nothing'"),
        (["--jobs", "0"], "--jobs is 0, expected at least 1"),
        (["--settings", "nowhere.yaml"], "nowhere.yaml cannot be read"),
    ],
)
def test_wrong_arguments_are_named(command, capsys, changes, said):
    with pytest.raises(SystemExit):
        command(*changes)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"x": np.ones((3, 4))}, "x has shape (3, 4) and type float64, expected floats"),
        ({"x": np.full((126, 2, 40), np.nan)}, "x has values that are not finite"),
        ({"y": np.zeros(5, int)}, "y must be 126 whole numbers"),
        ({"y": np.full(126, 3)}, "y goes from 3 to 3, expected 0 to 2, as classes has 3 names"),
        ({"sensor": np.ones(5)}, "sensor has shape (5,), expected (126,)"),
        ({"y": np.repeat([0, 1], [84, 42])}, "--train has no window of the class 'middle'"),
    ],
)
def test_wrong_files_are_named(command, capsys, changes, said):
    with pytest.raises(SystemExit):
        command(arrays=made() | changes)
    assert said in capsys.readouterr().err


def test_source_only_tests_nothing_on_the_target(command, trained_jobs, tmp_path, capsys):
    assert command("--source-only") == 0
    assert len(trained_jobs) == 4
    assert all(job.is_selection for job in trained_jobs)
    assert "| BatchNorm + AdaBN |" in capsys.readouterr().out
    assert not (tmp_path / "out" / "results.csv").exists()


def test_what_is_no_windows_file_is_named(domains, tmp_path):
    path = tmp_path / "made.npz"
    for content, said in ((None, "cannot be read"), (b"text", "not a file that numpy.savez makes")):
        if content:
            path.write_bytes(content)
        with pytest.raises(psdnorm.errors.ArgumentError, match=said):
            domains.read_windows(path, ["site"])
    np.savez(path, x=np.ones((1, 1, 1)))
    with pytest.raises(psdnorm.errors.ArgumentError, match="has no array y and classes"):
        domains.read_windows(path, ["site"])


def test_settings_must_have_the_keys_of_the_shipped_ones(command, tmp_path, capsys):
    for old, new, said in (
        ("steps: 6\n", "", "small.yaml has network, psdnorm, tma, optimiser, batch"),
        ("pool: 2", "pools: 2", "small.yaml: network has channels, kernel_size and pools"),
    ):
        (tmp_path / "small.yaml").write_text(SMALL.replace(old, new))
        with pytest.raises(SystemExit):
            command()
        assert said in capsys.readouterr().err


def test_values_are_ranges_of_whole_numbers_or_words(domains):
    arrays = {"subject": np.array([1, 2, 10, 11]), "device": np.array(["a-1", "1-3", "b", "b"])}
    for choices, expected in (
        (["subject=1-10"], [0, 1, 2]),
        (["subject=2,11"], [1, 3]),
        (["subject=1-2,11"], [0, 1, 3]),
        (["device=1-3,a-1"], [0, 1]),
        (["device=b", "subject=1-10"], [2]),
    ):
        chosen = domains.chosen_by("--train", choices, arrays, 4)
        assert np.flatnonzero(chosen).tolist() == expected


# ─── the parts ───


def test_shipped_settings_can_be_read_and_name_all_methods_once(domains):
    assert domains.read_settings(domains.SETTINGS)["seeds"] == 5
    names = [method.name for method in domains.METHODS]
    assert len(names) == len(set(names)) == 26
    assert len({method.label for method in domains.METHODS}) == 26


def test_norms_are_what_their_names_say(domains):
    settings = domains.read_settings(domains.SETTINGS)
    norm = domains.norm_of("psd-domain-17-unit-centred", settings, 4)(6, depth=2)
    assert (norm.filter_size, norm.statistics, norm.center) == (4, "domain", "domain")
    assert (norm.target_power, norm.momentum, norm.affine) == ("unit", 0.05, True)
    norm = domains.norm_of("psd-row-1", settings, 4)(6)
    assert (norm.filter_size, norm.statistics, norm.target_power) == (1, "row", "as-is")
    groups = domains.norm_of("layer", settings, 4)(6)
    assert isinstance(groups, torch.nn.GroupNorm)
    assert groups.num_groups == 1


def test_batchnorm_by_domain_is_batchnorm_of_each_domain(domains):
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5, 20) * torch.tensor([1.0, 5.0, 9.0]).view(3, 1, 1, 1)
    norm, plain = domains.DomainBatchNorm(5, 3), torch.nn.BatchNorm1d(5)
    torch.nn.init.normal_(norm.weight)
    plain.weight = norm.weight
    expected = torch.cat([plain(own) for own in x])
    torch.testing.assert_close(norm(x.flatten(0, 1)), expected)
    variance, mean = torch.var_mean(x, dim=(0, 1, 3))
    torch.testing.assert_close(norm.running_mean, 0.1 * mean)
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * variance)


def test_a_batch_has_as_many_windows_of_each_of_its_domains(domains):
    names = np.repeat(["a", "b", "c"], [10, 10, 3])
    batches = domains.draw_batches(names, 20, 2, 5, seed=0)
    assert batches.shape == (20, 2, 5)
    for batch in batches:
        own = names[batch]
        assert (own == own[:, :1]).all()
        assert own[0, 0] != own[1, 0]
        for rows in batch[own[:, 0] != "c"]:
            assert len(set(rows.tolist())) == 5
    assert domains.draw_batches(names, 1, 9, 5, seed=0).shape == (1, 3, 5)
    again = domains.draw_batches(names, 20, 2, 5, seed=0)
    np.testing.assert_array_equal(batches, again)


def test_held_out_domains_are_whole_and_at_least_one_is_left_to_train_on(domains):
    for n, expected in ((2, 1), (4, 1), (20, 5)):
        names = np.repeat([f"d{i}" for i in range(n)], 3)
        source = domains.Windows(np.ones((3 * n, 1, 4)), np.zeros(3 * n, int), names, ("a",))
        inner, held_out = domains.held_out_split(source, 0.25)
        assert len(held_out.names()) == expected
        assert {*inner.names()} | {*held_out.names()} == {*names.tolist()}
        assert not {*inner.names()} & {*held_out.names()}


@pytest.fixture
def split(domains, tmp_path):
    (tmp_path / "small.yaml").write_text(SMALL)
    np.savez(tmp_path / "made.npz", **made())
    windows, arrays = domains.read_windows(tmp_path / "made.npz", ["site", "sensor"])
    parts = domains.source_and_target(windows, arrays, ["site=north"], ["site=south"])
    return domains.Split(*parts, domains.read_settings(tmp_path / "small.yaml"), "cpu")


def test_inputs_are_scaled_by_one_constant_of_the_training_windows(split):
    assert split.x_train.std() == pytest.approx(1, rel=1e-3)
    ratio = split.test.x.astype(np.float32).std() / split.x_test.std()
    assert ratio == pytest.approx(split.train.x.astype(np.float32).std(), rel=1e-3)


def test_windows_are_aligned_as_by_tma(split):
    tma = TMA(40).fit(split.x_train, domains=split.train.domains)
    for domain, members in split.members.items():
        every, some = np.arange(len(members)), np.array([2, 3, 9])
        own = split.x_test[members]
        found = split.test_inputs(domain, every, every).numpy()
        np.testing.assert_allclose(found, tma.transform(own), atol=1e-5)
        found = split.test_inputs(domain, some, some).numpy()
        np.testing.assert_allclose(found, tma.transform(own[some]), atol=1e-5)
        np.testing.assert_array_equal(split.test_inputs(domain, some, None), own[some])


def test_unlabelled_sets_hold_one_class_two_and_all(domains):
    y = np.repeat([0, 1, 2, 4], 9)
    found = {}
    for condition, unlabelled in domains.unlabelled_sets(y, 8, draws=3, seed=0):
        found.setdefault(condition, []).append((len(unlabelled), len({*y[unlabelled]})))
    assert found["cold"] == [(0, 0)]
    assert found["one"] == [(8, 1)] * 3
    assert [n for n, _ in found["two"]] == [8] * 3
    assert all(n_classes <= 2 for _, n_classes in found["two"])
    assert max(n_classes for _, n_classes in found["all"]) > 2


def test_windows_arrive_shuffled_or_one_class_after_the_other(domains):
    y = np.tile([0, 1, 2], 6)
    orders = dict(domains.arrivals(y, 0))
    for order in orders.values():
        assert sorted(order.tolist()) == list(range(18))
    assert np.count_nonzero(np.diff(y[orders["sorted"]])) == 2
    assert np.count_nonzero(np.diff(y[orders["shuffled"]])) > 2


@pytest.fixture
def trained(domains, tmp_path, split):
    """Return a function that trains a method's network and gives its tester."""
    work = domains.Work(
        tmp_path / "made.npz", ("site", "sensor"), ("site=north",), ("site=south",), None,
        domains.read_settings(tmp_path / "small.yaml"), "cpu", None,
    )  # fmt: skip

    def tester(name):
        method = next(method for method in domains.METHODS if method.name == name)
        model = work.trained(domains.Job(method.network, 0.03, 0, False), split)
        return domains.Tester(model, method, split)

    return tester


def test_windows_of_one_class_set_the_filters_for_all_windows(trained):
    tester = trained("psd-domain-5-unit")
    domain, members = next(iter(tester.split.members.items()))
    one_class = np.flatnonzero(tester.split.test.y[members] == 1)
    x = torch.from_numpy(tester.split.x_test[members])
    with torch.no_grad(), psdnorm.domains(np.zeros(len(one_class), int)):
        expected = tester.model(x[one_class])
    found = tester.logits(domain, one_class)
    # their own filters are those of a batch of this domain alone; other windows get the same ones
    torch.testing.assert_close(found[one_class], expected, atol=1e-4, rtol=1e-4)
    with torch.no_grad(), psdnorm.adapt(tester.model, [x[one_class]]):
        torch.testing.assert_close(found[:1], tester.model(x[:1]), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(found, tester.logits(domain, np.arange(len(x))), atol=1e-2)


@pytest.mark.parametrize("name", ["adabn", "domain-batch", "tma", "tma-adabn", "psd-domain-5"])
def test_a_stream_ends_where_all_windows_at_once_begin(domains, trained, name):
    tester = trained(name)
    domain, members = next(iter(tester.split.members.items()))
    n = len(members)
    logits = tester.logits(domain, np.arange(n))
    # one arrival of everything is no stream
    streamed = tester.streamed(domain, np.arange(n), n)
    np.testing.assert_array_equal(streamed, logits.argmax(dim=1))
    adapted = tester.adaptation(windows=6, draws=1, arriving=10)
    assert set(adapted) == set(domains.CONDITIONS)
    for scores in adapted.values():
        assert set(scores) == set(tester.split.members)
        assert all(0 <= score <= 1 for score in scores.values())


def test_a_method_that_adapts_leaves_the_network_as_it_was(trained):
    for name in ("adabn", "psd-domain-5"):
        tester = trained(name)
        before = {key: value.clone() for key, value in tester.model.state_dict().items()}
        tester.adaptation(windows=6, draws=1, arriving=10)
        for key, value in tester.model.state_dict().items():
            assert torch.equal(value, before[key])


def test_balanced_accuracy_is_the_mean_recall_of_the_classes_that_occur(domains):
    true, predicted = np.array([0, 0, 0, 2]), np.array([0, 0, 1, 1])
    assert domains.balanced_accuracy(true, predicted) == pytest.approx(1 / 3)


def results(domains, **scores):
    """Results of methods by name, scores (domains, seeds) each."""
    by_name = {method.name.replace("-", "_"): method for method in domains.METHODS}
    methods = {by_name[name]: domains.Chosen(0.01, 0.5, 1.0) for name in scores}
    arrays = {by_name[name]: np.array(own, float) for name, own in scores.items()}
    return domains.Results(methods, arrays, {}, ["a", "b", "c"], [])


def test_gains_are_over_batchnorm_and_over_the_best_other_that_saw_as_much(domains):
    base = np.array([[0.4, 0.5], [0.6, 0.7], [0.2, 0.3]])
    found = results(
        domains,
        batch=base,
        layer=base + 0.05,
        adabn=base + 0.1,
        tma=base + 0.2,
        psd_domain_5=base + 0.3,
        psd_domain_1=base + 0.29,
    )
    rows = {row.method.name: row for row in found.rows(500, 0.95)}
    assert list(rows) == ["layer", "batch", "psd-domain-5", "psd-domain-1", "tma", "adabn"]
    assert rows["batch"].over_batch is None
    for name, gain in (("layer", 0.05), ("adabn", 0.1), ("psd-domain-5", 0.3)):
        # the same draws for all methods: a constant gain has no spread
        over = rows[name].over_batch
        assert (over.mean, over.low, over.high) == pytest.approx((gain,) * 3)
    for name, other, gain in (
        ("batch", "LayerNorm", -0.05),
        ("tma", "PSDNorm by domain, f = 5", -0.1),
        ("psd-domain-1", "TMA", 0.09),
    ):
        assert rows[name].best_other == other
        assert rows[name].over_best.mean == pytest.approx(gain)
        assert rows[name].over_best.low == pytest.approx(gain)


def test_intervals_are_of_domains_and_seeds(domains):
    of_domains = results(domains, batch=[[0.2, 0.2], [0.5, 0.5], [0.8, 0.8]])
    of_seeds = results(domains, batch=[[0.2, 0.8]] * 3)
    of_nothing = results(domains, batch=[[0.5, 0.5]] * 3)
    ends = [(row.score.low, row.score.high) for r in (of_domains, of_seeds, of_nothing)
            for row in r.rows(2000, 0.95)]  # fmt: skip
    assert ends[0] == pytest.approx((0.2, 0.8), abs=0.11)
    assert ends[1] == pytest.approx((0.2, 0.8))
    assert ends[2] == pytest.approx((0.5, 0.5))


def test_the_variant_that_source_domains_choose_is_marked(domains):
    score = np.ones((3, 2))
    found = results(domains, psd_domain_5=score, psd_domain_1=0 * score, psd_row_5=score)
    better = next(method for method in found.methods if method.name == "psd-domain-1")
    found.methods[better] = domains.Chosen(0.01, 0.6, 1.0)
    marked = [row.method.name for row in found.rows(10, 0.95) if row.is_source_choice]
    assert marked == ["psd-domain-1"]


def test_a_learning_rate_is_chosen_by_score_then_by_loss(domains):
    found = [domains.Chosen(0.1, 0.9, 0.5), domains.Chosen(0.2, 0.90001, 0.4)]
    assert domains._best(found).learning_rate == 0.2
    assert domains._best([*found, domains.Chosen(0.3, 0.95, 9.0)]).learning_rate == 0.3


def test_numbers_have_a_minus_sign_and_one_decimal(domains):
    text = domains.Interval(-0.0123, -0.2, 0.3).text("+")
    assert re.fullmatch(r"−1\.2 \(−20\.0 to \+30\.0\)", text)
