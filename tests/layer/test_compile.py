"""torch.compile sees the whole layer, once, and computes what eager mode computes."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from psdnorm import PSDNorm


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def signals(seed=0, n=3, length=120):
    return torch.randn(n, 2, length, generator=torch.Generator().manual_seed(seed))


class CompileCounter:
    """A backend that counts how often a graph is handed to it."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, _inputs):
        self.graphs += 1
        return graph.forward


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_no_graph_break_and_no_recompilation_from_step_to_step(training, momentum):
    counter = CompileCounter()
    layer = PSDNorm(2, 5, momentum=momentum, affine=True).train(training)
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    for step in range(4):
        compiled(signals(step).requires_grad_()).backward(signals(step + 9))
    assert counter.graphs == 1
    assert layer.num_batches_tracked.tolist() == ([4, 4] if training else [0, 0])


def steps(run, layer, n=3, bad_row=False):
    outputs = []
    for step in range(n):
        x = signals(step)
        if bad_row:
            x[0, 0, 0] = torch.nan
        y = run(x.requires_grad_())
        y.backward(signals(step + 50))
        outputs += [y.detach(), x.grad]
    return outputs, dict(layer.state_dict())


@pytest.mark.parametrize("options", [{}, {"target": "white"}, {"filter_size": 70}], ids=str)
def test_compiled_training_equals_eager(options):
    options = {"filter_size": 4, "affine": True, "momentum": 0.3, **options}
    eager, layer = PSDNorm(2, **options), PSDNorm(2, **options)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(steps(compiled, layer), steps(eager, eager))


def test_inductor_equals_eager_in_training_and_evaluation():
    eager, layer = PSDNorm(2, 5, affine=True), PSDNorm(2, 5, affine=True)
    compiled = torch.compile(layer, fullgraph=True)
    torch.testing.assert_close(steps(compiled, layer), steps(eager, eager), rtol=1e-4, atol=1e-5)
    eager.eval(), layer.eval()
    torch.testing.assert_close(compiled(signals(9)), eager(signals(9)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("momentum", [0.5, None])
def test_a_checkpoint_around_a_compiled_layer_updates_once_a_step(momentum):
    eager, layer = PSDNorm(2, 5, momentum=momentum), PSDNorm(2, 5, momentum=momentum)
    compiled = torch.compile(layer, backend="aot_eager")

    def checkpointed(x):
        return checkpoint(compiled, x, use_reentrant=False)

    expected = steps(eager, eager, bad_row=True)
    torch.testing.assert_close(steps(checkpointed, layer, bad_row=True), expected, equal_nan=True)
    assert layer.rows_skipped == 3


def test_a_compiled_model_with_activation_checkpointing_updates_once_a_step():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = PSDNorm(2, 5, momentum=0.5)

        def forward(self, x):
            return checkpoint(lambda x: self.norm(x).tanh(), x, use_reentrant=False)

    eager, block = PSDNorm(2, 5, momentum=0.5), Block()
    compiled = torch.compile(block, backend="aot_eager")
    expected = steps(lambda x: eager(x).tanh(), eager)[0]
    torch.testing.assert_close(steps(compiled, block)[0], expected)
    torch.testing.assert_close(block.norm.state_dict(), eager.state_dict())
