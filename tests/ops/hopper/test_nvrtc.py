"""What is asked of NVRTC and of the CUDA driver, by a driver that remembers what it was asked."""

import ctypes
from types import SimpleNamespace

import pytest
import torch

from psdnorm.ops.hopper import nvrtc

SIZES = nvrtc.Sizes(cluster_size=4, n_threads=384, shared_bytes=200_000)


class Driver:
    """Every function succeeds, and is remembered with its arguments."""

    def __init__(self, **codes):
        self.codes = codes
        self.calls = []

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, arguments))
            return self.codes.get(name, 0)

        return call

    def arguments(self, name):
        return [arguments for called, arguments in self.calls if called == name]


class Number(ctypes.Structure):
    _fields_ = (("value", ctypes.c_int),)


@pytest.fixture
def driver(monkeypatch):
    made = Driver()
    monkeypatch.setattr(nvrtc, "_library", lambda *names: made)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=77))
    return made


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Keep kernels in a new folder; the compiler returns its source and counts what it compiles."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(nvrtc, "_nvrtc_version", lambda: (13, 0))
    calls = []
    compile_one = lambda source, options: calls.append(source) or source.encode()  # noqa: E731
    monkeypatch.setattr(nvrtc, "_compile", compile_one)
    return calls


def test_a_compiled_kernel_is_kept_on_disk(compiler, tmp_path):
    for _ in range(2):
        assert nvrtc.compiled("one", ("-a",)) == b"one"
    assert nvrtc.compiled("one", ("-b",)) == b"one"
    assert len(compiler) == len(list((tmp_path / "psdnorm").iterdir())) == 2


def test_a_kernel_that_was_not_kept_whole_is_compiled_again(compiler, tmp_path):
    nvrtc.compiled("one", ())
    (kept,) = (tmp_path / "psdnorm").iterdir()
    for content in (kept.read_bytes()[:-1], b""):
        kept.write_bytes(content)
        assert nvrtc.compiled("one", ()) == b"one"
    assert nvrtc.compiled("one", ()) == b"one"
    assert len(compiler) == 3


@pytest.mark.parametrize("place", ["a file", "a folder in the place of the kernel", "nowhere"])
def test_where_nothing_can_be_kept_it_only_costs_time(compiler, tmp_path, monkeypatch, place):
    if place == "a file":
        (tmp_path / "psdnorm").touch()
    elif place == "nowhere":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(nvrtc.os.path, "expanduser", lambda path: path)
    else:
        nvrtc.compiled("one", ())
        (kept,) = (tmp_path / "psdnorm").iterdir()
        kept.unlink()
        kept.mkdir()
    for _ in range(2):
        assert nvrtc.compiled("one", ()) == b"one"
    assert len(compiler) >= 2
    assert not [path for path in tmp_path.rglob("tmp*") if path.is_file()]


def test_a_library_that_is_not_there_is_named():
    with pytest.raises(nvrtc.CompilerError, match=r"libnothing\.so cannot be loaded"):
        nvrtc._library("libnothing.so")


def test_a_launch_says_how_it_is_cut(driver):
    argument = Number(5)
    nvrtc.Kernel(b"cubin", "name", 1000)(10, SIZES, argument)
    ((config, _, pointers, extra),) = driver.arguments("cuLaunchKernelEx")
    config = config._obj
    assert [*config.grid] == [40, 1, 1]
    assert [*config.block] == [384, 1, 1]
    assert (config.shared_bytes, config.stream, config.n_attributes) == (200_000, 77, 2)
    assert config.attributes[0].id == 4  # the size of a cluster
    assert [*config.attributes[0].value[:3]] == [4, 1, 1]
    # it may be sent for before the kernel before it has ended
    assert (config.attributes[1].id, config.attributes[1].value[0]) == (6, 1)
    assert pointers[0] == ctypes.addressof(argument)
    assert extra is None


def test_structures_are_as_large_as_the_drivers():
    assert ctypes.sizeof(nvrtc._LaunchAttribute) == 72
    assert ctypes.sizeof(nvrtc._LaunchConfig) == 56
    assert nvrtc._LaunchConfig.stream.offset == 32


def test_a_thread_without_a_context_gets_torchs(driver):
    nvrtc.Kernel(b"cubin", "name", 1000)
    assert driver.arguments("cuDeviceGet")[0][1] == 1
    assert [name for name, _ in driver.calls][:5] == [
        "cuCtxGetCurrent",
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
        "cuModuleLoadData",
    ]


def test_a_program_may_ask_for_all_of_the_shared_memory(driver):
    nvrtc.Kernel(b"cubin", "name", 1000)
    assert [given[1:] for given in driver.arguments("cuFuncSetAttribute")] == [(8, 1000), (9, 100)]


def test_where_no_cluster_fits_none_is_counted(driver):
    kernel = nvrtc.Kernel(b"cubin", "name", 1000)
    driver.codes = {"cuOccupancyMaxActiveClusters": 1}
    assert kernel.resident_clusters(SIZES) == 0


def test_a_driver_that_refuses_is_an_error_of_its_own(driver):
    driver.codes = {"cuModuleLoadData": 209}
    with pytest.raises(nvrtc.CompilerError, match="the CUDA driver says 209"):
        nvrtc.Kernel(b"cubin", "name", 1000)
