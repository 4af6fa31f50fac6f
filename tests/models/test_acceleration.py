"""The fast way computes what the model computes, where it is open."""

import pytest
import torch
from torch import nn

from psdnorm.errors import ArgumentError, BackendError, ShapeError
from psdnorm.models import CNNTransformer, USleep, accelerate

SMALL = {"n_times": 300, "sfreq": 100, "depth": 2}
gpu = [
    pytest.mark.gpu,
    # torch on torch: what its compiler says of itself is not under test
    pytest.mark.filterwarnings("ignore"),
]


def sequences(n, n_epochs=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, n_epochs, 2, 300, generator=generator)


@pytest.mark.parametrize("fast", ["auto", False])
def test_on_a_processor_it_is_the_model(fast):
    model = USleep(**SMALL)
    assert accelerate(model, fast) is model


def test_insisting_on_it_where_it_is_not_open_is_refused():
    with pytest.raises(BackendError, match="the model is on cpu, expected a CUDA device"):
        accelerate(USleep(**SMALL), True)


def test_an_argument_that_means_nothing_is_refused():
    with pytest.raises(ArgumentError, match="fast must be \"auto\", True or False, found 'bf16'"):
        accelerate(USleep(**SMALL), "bf16")


@pytest.fixture
def compilations(monkeypatch):
    """Let the fast way be open on a processor, with a compiler that only counts."""
    counted = []

    def compile_(function, **options):
        graphs = []

        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward

        counted.append(graphs)
        return real(function, backend=backend, dynamic=options["dynamic"])

    real = torch.compile
    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr("psdnorm.models.acceleration._obstacle", lambda model: None)
    yield counted
    torch._dynamo.reset()


def test_a_batch_that_is_refused_does_not_decide_what_is_compiled(compilations):
    model = USleep(**SMALL).eval()
    forward = accelerate(model)
    with torch.no_grad():
        with pytest.raises(ShapeError, match="3 in an input"):
            forward(torch.randn(2, 5, 3, 300))
        for n in (2, 2, 2, 1):
            assert forward(sequences(n)).shape == (n, 5, 5)
    assert len(compilations[0]) == 1


@torch._dynamo.config.patch(recompile_limit=2)  # of all that share their code
def test_every_one_of_many_models_is_compiled(compilations):
    for n_outputs in range(2, 6):
        model = USleep(**{**SMALL, "depth": 1}, norm_depth=1, n_outputs=n_outputs)
        forward = accelerate(model)
        with torch.no_grad():
            for _ in range(2):
                forward(sequences(2))
    assert [len(graphs) for graphs in compilations] == [1] * 4


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_norms_that_are_set_otherwise_are_compiled_as_they_are(compilations, training):
    arguments = {"eps": 0.1, "affine": True, "window": "hann", "padding_mode": "zeros"}
    torch.manual_seed(0)
    plain = USleep(**SMALL, norm="psd", norm_arguments=arguments, filter_schedule="same")
    model = USleep(**plain.config)
    model.load_state_dict(plain.state_dict())
    forward, x = accelerate(model.train(training)), sequences(2)
    plain.train(training)
    for _ in range(3):
        found, expected = forward(x), plain(x)
    assert len(compilations[0]) == 1
    assert (found - expected).norm() < 2e-2 * expected.norm()


def test_what_is_compiled_wrongly_runs_uncompiled(monkeypatch):
    def wrong(function, **options):
        return lambda x: 1.1 * function(x)

    monkeypatch.setattr(torch, "compile", wrong)
    monkeypatch.setattr("psdnorm.models.acceleration._obstacle", lambda model: None)
    torch.manual_seed(0)
    plain, model = USleep(**SMALL, norm="psd"), USleep(**SMALL, norm="psd")
    model.load_state_dict(plain.state_dict())
    forward = accelerate(model)
    x = sequences(3)
    forward(x), plain(x)
    with pytest.warns(
        UserWarning, match=r"compiles USleep wrongly: its outputs are off by 0\.(1|099)"
    ):
        found = forward(x)
    expected = plain(x)
    assert (found - expected).norm() < 2e-2 * expected.norm()
    for name, value in plain.named_buffers():  # moved once, not by what was compared
        torch.testing.assert_close(model.get_buffer(name), value, rtol=5e-2, atol=1e-2, msg=name)
    assert (forward(x) - plain(x)).norm() < 2e-2 * expected.norm()


def test_with_dropout_no_random_number_is_drawn_to_compare(compilations):
    torch.manual_seed(0)
    sizes = {"n_times": 300, "sfreq": 100, "channels": (4, 8), "strides": (3, 5), "n_heads": 2}
    model = CNNTransformer(**sizes, n_layers=1)
    forward, x = accelerate(model), sequences(2)
    for n_passes in (1, 2):
        torch.manual_seed(0)
        for _ in range(n_passes):
            forward(x)
        drawn = torch.random.get_rng_state()
        torch.manual_seed(0)
        for _ in range(n_passes):
            model(x)
        assert torch.equal(drawn, torch.random.get_rng_state())


@pytest.fixture
def pair():
    """The same network twice: plain, and with its accelerated forward pass."""
    torch.manual_seed(0)
    plain = USleep(**SMALL, norm="psd").cuda()
    model = USleep(**SMALL, norm="psd").cuda()
    model.load_state_dict(plain.state_dict())
    yield plain, model, accelerate(model)
    torch._dynamo.reset()


def train(model, forward, x, stages, n_steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    losses = []
    for _ in range(n_steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(forward(x), stages)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class TestOnTheDevice:
    pytestmark = gpu

    def test_in_evaluation_it_gives_the_models_outputs(self, pair):
        plain, model, forward = pair
        x = sequences(4).cuda()
        plain.eval(), model.eval()
        with torch.no_grad():
            forward(x)  # the first is not compiled
            expected, kept, found = plain(x), forward(x), forward(x)
        assert found.dtype == torch.float32
        assert (found - expected).norm() < 3e-2 * expected.norm()
        # a result stays what it was when the graph is replayed
        with torch.no_grad():
            forward(-x)
        torch.testing.assert_close(kept, found)

    def test_bfloat16_learns_a_batch_by_heart_as_float32_does(self, pair):
        plain, model, forward = pair
        x = sequences(4).cuda()
        stages = torch.arange(20, device="cuda").view(4, 5) % 5
        slow = train(plain, plain, x, stages, 150)
        fast = train(model, forward, x, stages, 150)
        assert fast[0] == pytest.approx(slow[0], rel=2e-2)
        assert max(fast[-1], slow[-1]) < 0.25 * slow[0]

    def test_the_state_moves_as_in_the_model(self, pair):
        plain, model, forward = pair
        x = sequences(4).cuda()
        for _ in range(3):
            plain(x), forward(x)
        for name, expected in plain.named_buffers():
            found = model.get_buffer(name)
            torch.testing.assert_close(found, expected, rtol=3e-2, atol=1e-2, msg=name)

    @pytest.mark.filterwarnings("error:torch .* compiles")
    @pytest.mark.parametrize("norm", ["batch", "psd"])
    @pytest.mark.parametrize("training", [True, False])
    def test_rows_that_the_compiler_would_pad_are_right(self, norm, training):
        torch.manual_seed(0)
        model = USleep(n_times=3000, sfreq=100, depth=1, norm=norm, norm_depth=1).cuda()
        model.train(training)
        forward = accelerate(model)
        x = torch.randn(16, 35, 2, 3000, device="cuda")
        with torch.no_grad():
            expected = model(x)
        for _ in range(5):  # uncompiled, compiled, recorded, replayed
            with torch.set_grad_enabled(training):
                found = forward(x)
            if training:
                found.square().mean().backward()
            assert (found - expected).norm() < 1e-2 * expected.norm()
        torch._dynamo.reset()

    def test_a_batch_of_another_shape_is_not_compiled(self, pair):
        _, model, forward = pair
        model.eval()
        with torch.no_grad():
            for _ in range(2):
                forward(sequences(4).cuda())
            before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
            assert forward(sequences(3).cuda()).shape == (3, 5, 5)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before

    def test_without_graphs_gradients_add_up(self):
        torch.manual_seed(0)
        model = USleep(**SMALL, norm="instance", norm_depth=2).cuda()
        forward = accelerate(model, cuda_graphs=False)
        forward(sequences(4).cuda())  # uncompiled, it rounds otherwise
        gradients = []
        for n_passes in (1, 2):
            model.zero_grad()
            for _ in range(n_passes):
                forward(sequences(4).cuda()).square().sum().backward()
            gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        torch.testing.assert_close(gradients[1], 2 * gradients[0], rtol=1e-3, atol=1e-3)
