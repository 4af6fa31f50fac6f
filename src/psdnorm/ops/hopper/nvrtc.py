"""Compile and launch CUDA C++ with NVRTC, which comes with torch, and the driver, through ctypes.

Written by hand because torch's own ``torch.cuda._compile_kernel`` cannot launch clusters, cannot
start a kernel before the previous one has ended, and has no cache on disk.
"""

import contextlib
import ctypes
import hashlib
import os
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

_DIGEST_BYTES = 32  # of SHA-256
_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_EARLY_START = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SHARED_CARVEOUT = 9  # CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT


class CompilerError(RuntimeError):
    """NVRTC or the driver is missing or reports an error."""


class _LaunchAttribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16))


class _LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("n_attributes", ctypes.c_uint),
    )


def compiled(source: str, options: tuple[str, ...]) -> bytes:
    """Compile CUDA C++ to a cubin, or read it from the cache in ``$XDG_CACHE_HOME/psdnorm``."""
    asked = repr((_nvrtc_version(), options, source)).encode()
    folder = _cache_folder()
    if folder is None:
        return _compile(source, options)
    path = folder / f"{hashlib.sha256(asked).hexdigest()[:32]}.cubin"
    cubin = _kept(path)
    if cubin is None:
        cubin = _compile(source, options)
        _keep(path, cubin)
    return cubin


class Sizes(NamedTuple):
    """The dimensions of a launch."""

    cluster_size: int  # thread blocks
    n_threads: int  # per thread block
    shared_bytes: int  # per thread block


class Kernel:
    """A kernel on the current device, launched in clusters of thread blocks."""

    # it may start before the previous kernel has ended, and must wait for its end
    # (griddepcontrol.wait) before accessing memory
    def __init__(self, cubin: bytes, name: str, shared_bytes: int):
        self._driver = _library("libcuda.so.1", "nvcuda.dll")
        self._bind_thread()
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(module), cubin))
        function = ctypes.byref(self._function)
        self._check(self._driver.cuModuleGetFunction(function, module, name.encode()))
        for attribute, value in ((_MAX_DYNAMIC_SHARED, shared_bytes), (_SHARED_CARVEOUT, 100)):
            self._check(self._driver.cuFuncSetAttribute(self._function, attribute, value))

    def resident_clusters(self, sizes: Sizes) -> int:
        """Count the clusters that the device holds at a time; 0 if it cannot hold one."""
        found, config = ctypes.c_int(), _config(1, sizes, None)
        self._bind_thread()
        code = self._driver.cuOccupancyMaxActiveClusters(
            ctypes.byref(found), self._function, ctypes.byref(config)
        )
        return 0 if code else found.value

    def __call__(self, n_clusters: int, sizes: Sizes, argument: ctypes.Structure) -> None:
        """Launch on torch's current stream with one argument."""
        self._bind_thread()
        config = _config(n_clusters, sizes, torch.cuda.current_stream().cuda_stream)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        self._check(
            self._driver.cuLaunchKernelEx(ctypes.byref(config), self._function, pointers, None)
        )

    def _bind_thread(self) -> None:
        # a thread of the autograd engine has no CUDA context until torch's first runtime call in it
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self._check(self._driver.cuCtxGetCurrent(ctypes.byref(context)))
        if context:
            return
        index = torch.cuda.current_device()
        self._check(self._driver.cuDeviceGet(ctypes.byref(device), index))
        self._check(self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self._check(self._driver.cuCtxSetCurrent(context))

    def _check(self, code: int) -> None:
        if code:
            reason = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(reason))
            raise CompilerError(f"the CUDA driver says {(reason.value or b'').decode() or code}")


def _config(n_clusters: int, sizes: Sizes, stream: int | None) -> _LaunchConfig:
    cluster, early = attributes = (_LaunchAttribute * 2)()
    cluster.id, early.id = _CLUSTER_DIMENSION, _EARLY_START
    cluster.value[:3] = (sizes.cluster_size, 1, 1)
    early.value[0] = 1
    grid, block = (n_clusters * sizes.cluster_size, 1, 1), (sizes.n_threads, 1, 1)
    return _LaunchConfig(grid, block, sizes.shared_bytes, stream, attributes, len(attributes))


def _compile(source: str, options: tuple[str, ...]) -> bytes:
    library = _nvrtc()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    named = source.encode(), b"psdnorm.cu"
    code = library.nvrtcCreateProgram(ctypes.byref(program), *named, 0, None, None)
    if code:
        raise CompilerError(f"NVRTC cannot create a program (code {code})")
    try:
        code = library.nvrtcCompileProgram(program, len(options), given)
        if code:
            library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value + 1)
            library.nvrtcGetProgramLog(program, log)
            raise CompilerError(f"NVRTC cannot compile (code {code}): {log.value.decode()[:2000]}")
        code = library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        cubin = ctypes.create_string_buffer(size.value)
        code = code or library.nvrtcGetCUBIN(program, cubin)
        if code:
            raise CompilerError(f"NVRTC returned no cubin (code {code})")
        return cubin.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _kept(path: Path) -> bytes | None:
    """Read a cached cubin; None if it is missing, unreadable or truncated."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, cubin = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return cubin if hashlib.sha256(cubin).digest() == digest else None


def _keep(path: Path, cubin: bytes) -> None:
    # if the folder is not writable, that only costs seconds
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # atomic: another process may read it at this moment
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                file.write(hashlib.sha256(cubin).digest() + cubin)
                file.flush()
                os.replace(file.name, path)
            except OSError:
                os.unlink(file.name)


def _cache_folder() -> Path | None:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # without a home "~" is not expanded, and a cache does not belong at a relative path
    return Path(root) / "psdnorm" if os.path.isabs(root) else None


@lru_cache(maxsize=1)
def _nvrtc() -> ctypes.CDLL:
    major = (torch.version.cuda or "13").split(".")[0]
    return _library(f"libnvrtc.so.{major}", "libnvrtc.so", f"nvrtc64_{major}0_0.dll")


def _nvrtc_version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


@lru_cache(maxsize=4)
def _library(*names: str) -> ctypes.CDLL:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CompilerError(f"{names[0]} cannot be loaded")
