"""The process that trains: its devices, its random generators, its silence."""

import contextlib
import logging
import multiprocessing
import os
import random
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.multiprocessing
import torch.utils.deterministic

from psdnorm.errors import ArgumentError, MissingExtraError, TrainingError
from psdnorm.runtime import ctrl_c_waits, undisturbed
from psdnorm.training.finite import NotFiniteError

if TYPE_CHECKING:
    from lightning import Fabric

_GLANCE_S = 0.2  # at what goes on in another thread
_SEED_VARIABLES = ("PL_GLOBAL_SEED", "PL_SEED_WORKERS")


def resolve_device(device: str | torch.device, devices: int = 1) -> torch.device:
    """Return the device that was asked for; for "auto", a CUDA device where there is one.

    Parameters
    ----------
    device : str or torch.device
    devices : int
        How many of its kind are needed.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
    except RuntimeError:
        raise ArgumentError(f"device is {device!r}, expected 'auto', 'cpu' or 'cuda'") from None
    if found.type not in ("cpu", "cuda"):
        raise ArgumentError(f"device is {device!r}, expected 'auto', 'cpu' or 'cuda'")
    if found.type == "cuda":
        there = torch.cuda.device_count()
        if (found.index or 0) >= there:
            raise ArgumentError(f"device is {device!r}, found {there} CUDA devices")
        if devices > there:
            raise ArgumentError(f"devices is {devices}, found {there} CUDA devices")
    return torch.device("cuda", found.index or 0) if found.type == "cuda" else found


def launch(work: Callable, task: object, device: torch.device, devices: int) -> None:
    """Do work on one device in this process, or on several, each in a process of its own.

    Parameters
    ----------
    work : callable
        Is given Lightning's Fabric and ``task``.
    task : object
    device : torch.device
    devices : int
        How many; from 2 on the index of ``device`` does not matter.
    """
    try:
        from lightning import Fabric
        from lightning.fabric.plugins.environments import LightningEnvironment
    except ImportError as error:
        raise MissingExtraError('training needs lightning: pip install "psdnorm[train]"') from error
    fabric = Fabric(
        accelerator=device.type,
        devices=[device.index] if device.type == "cuda" and devices == 1 else devices,
        strategy="ddp_spawn" if devices > 1 else "auto",
        # a job of SLURM's may have more tasks than this run: they are not ours to join
        plugins=[LightningEnvironment()],
    )
    in_order = _InOrder(work, task)
    try:
        if devices == 1:
            with quiet_libraries():  # of the device, too, while it is set up
                fabric.launch(in_order)
        else:
            _launch_processes(fabric, in_order)
    except torch.multiprocessing.ProcessRaisedException as error:
        # what was raised over there arrives as text
        kind, _, sentence = str(error).strip().splitlines()[-1].partition(": ")
        raised = NotFiniteError if kind.endswith(NotFiniteError.__name__) else TrainingError
        is_ours = kind.startswith("psdnorm.")
        raise raised(sentence if is_ours else f"{kind}: {sentence}") from error


def _launch_processes(fabric: "Fabric", work: "_InOrder") -> None:
    """Launch processes that leave Ctrl-C to this one until they work, and that end with it."""
    raised, ended = list[BaseException](), threading.Event()

    def launch_them() -> None:
        try:
            # of this thread alone: the main one still hears it, those that are started do not
            with ctrl_c_waits():
                fabric.launch(work)
        except BaseException as error:
            raised.append(error)
        finally:
            ended.set()

    others = set(multiprocessing.active_children())
    threading.Thread(target=launch_them, daemon=True).start()
    try:
        # not Thread.join, which takes the thread for ended once it was interrupted
        while not ended.wait(_GLANCE_S):
            pass
    except BaseException:
        with undisturbed():
            while not ended.wait(_GLANCE_S):  # it may still be starting some
                for process in set(multiprocessing.active_children()) - others:
                    process.kill()
        raise
    if raised:
        raise raised[0]


class _InOrder:
    """Work on a task, quietly and reproducibly, in a process of its own too.

    It holds the task: Lightning looks into arguments for modules, and stumbles over a frozen one.
    """

    def __init__(self, work: Callable, task: object) -> None:
        self._work, self._task = work, task

    def __call__(self, fabric: "Fabric") -> None:
        if fabric.world_size > 1 and hasattr(signal, "pthread_sigmask"):
            # by it torch ends a process whose parent was killed
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        with quiet_libraries(), reproducible(fabric.device):
            self._work(fabric, self._task)

    def __setstate__(self, state: dict[str, object]) -> None:
        # a new process gets this before Lightning announces that it begins
        for logger in _loggers():
            logger.setLevel(logging.ERROR)
        vars(self).update(state)


def _loggers() -> list[logging.Logger]:
    names = ("lightning", "lightning.fabric", "lightning.pytorch", "torch.multiprocessing.spawn")
    return [logging.getLogger(name) for name in names]


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Keep to themselves what Lightning and torch's compiler say that tells a user nothing."""
    loggers = _loggers()
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            for module in ("lightning", "torch._inductor", "torch._dynamo", "tensorboard"):
                warnings.filterwarnings("ignore", module=module)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Leave the caller's random generators alone; on a CPU, let nothing depend on chance.

    Parameters
    ----------
    device : torch.device
    """
    variables = {name: os.environ.get(name) for name in _SEED_VARIABLES}
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 (Lightning seeds it)
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    fills = memory.fill_uninitialized_memory
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices):
            if device.type == "cpu":
                torch.use_deterministic_algorithms(True)
                memory.fill_uninitialized_memory = False
            yield
    finally:
        torch.use_deterministic_algorithms(was_deterministic)
        memory.fill_uninitialized_memory = fills
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
