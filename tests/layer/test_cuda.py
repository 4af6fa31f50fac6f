"""On a CUDA device: nothing waits for the host, and every way of running agrees with the CPU."""

import pytest
import torch
from triton_kernels import waiting_for_the_host_is_an_error

from psdnorm import PSDNorm

pytestmark = [
    pytest.mark.gpu,
    # torch on torch: what its compiler says of itself is not under test
    pytest.mark.filterwarnings("ignore"),
]


def signals(seed=0, shape=(6, 3, 4001)):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return x + 0.5 * x.roll(1, -1) + 1


def steps(layer, run, device, n=4):
    outputs = []
    for step in range(n):
        x = signals(step).to(device).requires_grad_()
        y = run(x)
        y.backward(signals(step + 50).to(device))
        outputs += [y.detach().cpu().clone(), x.grad.cpu().clone()]
    return outputs, {k: v.cpu().clone() for k, v in layer.state_dict().items()}


@pytest.fixture
def expected():
    layer = PSDNorm(3, 5, momentum=0.3, backend="reference")
    return steps(layer, layer, "cpu")


def on_gpu(backend):
    # no affine map: with parameters, this way of stepping breaks CUDA graphs for torch's norms too
    return PSDNorm(3, 5, momentum=0.3, backend=backend, device="cuda")


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("mode", ["eager", "default", "reduce-overhead"])
def test_training_on_the_device_equals_training_on_the_cpu(expected, backend, mode):
    torch.compiler.reset()
    layer = on_gpu(backend)
    run = layer if mode == "eager" else torch.compile(layer, fullgraph=True, mode=mode)
    torch.testing.assert_close(steps(layer, run, "cuda"), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_nothing_waits_for_the_host(backend):
    layer = on_gpu(backend)
    x = signals().cuda()
    x[1, 1, 7] = torch.nan
    x.requires_grad_()
    layer(x).nan_to_num().sum().backward()  # compiles what has to be compiled
    torch.cuda.synchronize()
    with waiting_for_the_host_is_an_error():
        layer.train()(x).backward(torch.ones_like(x))
        layer.eval()(x)
    assert layer.rows_skipped == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_keeps_statistics_in_float32(dtype):
    layer = on_gpu("auto")
    with torch.autocast("cuda", dtype):
        y = layer(signals().cuda())
    torch.testing.assert_close(y, on_gpu("auto")(signals().cuda()), rtol=0, atol=0)
    assert layer.running_sqrt_psd.dtype == torch.float32
