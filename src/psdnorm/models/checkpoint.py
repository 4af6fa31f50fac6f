"""Checkpoints: weights as safetensors, a config and a model card on disk."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import psdnorm
from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError, CheckpointError, MissingExtraError, os_errors_as

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

WEIGHTS, CONFIG = "model.safetensors", "config.json"
FORMAT_VERSION = 1

# the fields of config.json and their JSON types
_FIELDS: dict[str, tuple[type, ...]] = {
    "architecture": (str,),
    "arguments": (dict,),
    "stages": (list, type(None)),
    "recipe": (dict, type(None)),
    "training_data": (str, dict, list, type(None)),
    "licence": (str, type(None)),
    "training_spread": (dict, type(None)),
    "versions": (dict,),
    "weights": (dict,),
}
_OPTIONAL = ("training_spread",)  # absent from early files of this format
_KINDS = {str: "text", dict: "a dict", list: "a list", type(None): "None"}
# limits for untrusted files: bytes of JSON, items of a list, magnitude of a number
_MOST_BYTES, _MOST_ITEMS, _MOST = 2**24, 2**12, 2**20

# names, shapes and dtypes of tensors; a dtype that no model has keeps its name in safetensors
Layout = dict[str, tuple[tuple[int, ...], torch.dtype | str]]
_FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
_DTYPES = {**_FLOATS, "I64": torch.int64}
# building a module takes about five torch calls per tensor
_MOST_CALLS_PER_TENSOR = 50
_MARK = "[0-9a-f]" * 16  # suffix of a temporary file

_ARCHITECTURES: dict[str, type["Pretrained"]] = {}
Model = TypeVar("Model", bound="Pretrained")


class Pretrained(nn.Module):
    """A model that can be saved to a folder and loaded from it.

    A subclass stores the arguments that it was built with in ``config``, so that
    ``Class(**config)`` has the same architecture.

    Attributes
    ----------
    config : dict
    card : dict or None
        Contents of ``config.json``, if the model was loaded: ``architecture``, ``arguments``,
        ``stages``, ``recipe``, ``training_data``, ``licence``, ``training_spread``, ``versions``
        and more.
    """

    config: dict[str, Any]
    card: dict[str, Any] | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _ARCHITECTURES.setdefault(cls.__name__, cls)

    def save_pretrained(
        self,
        folder: str | os.PathLike[str],
        *,
        stages: Sequence[str] | None = None,
        recipe: Mapping[str, Any] | None = None,
        training_data: Any = None,
        licence: str | None = None,
        training_spread: Mapping[str, Any] | None = None,
    ) -> None:
        """Write ``model.safetensors`` and ``config.json`` into a folder, both or neither.

        Arguments that are not given are taken from ``card``, so that a model that was loaded and
        trained further keeps its recipe and its licence.

        Parameters
        ----------
        folder : path
            Created if missing. A checkpoint in it is replaced once the new one is written.
        stages : sequence of str, optional
            Names of the outputs; W, N1, N2, N3, REM for a model with five.
        recipe : dict, optional
            The preprocessing that the model expects.
        training_data : str, dict or list, optional
            What the model was trained on.
        licence : str, optional
            Licence of the weights.
        training_spread : dict, optional
            How the training nights differ, see :func:`psdnorm.drift.measure_spread`. It belongs
            to these weights: measure it again after further training.
        """
        card = self.card or {}
        document = {
            "format_version": FORMAT_VERSION,
            "architecture": type(self).__name__,
            "arguments": _plain_arguments(self.config),
            "stages": card.get("stages") if stages is None else stages,
            "recipe": recipe,
            "training_data": training_data,
            "licence": licence,
            "training_spread": training_spread,
            "versions": {"psdnorm": psdnorm.__version__, "torch": str(torch.__version__)},
        }
        document["stages"] = _plain_stages(document["stages"], self.config["n_outputs"])
        for name in ("recipe", "training_data", "licence", "training_spread"):
            value = card.get(name) if document[name] is None else document[name]
            document[name] = _plain_field(name, value)
        tensors = _tensors(self)
        built = _layout(type(self), document["arguments"], len(tensors))
        difference = _difference({k: (tuple(v.shape), v.dtype) for k, v in tensors.items()}, built)
        if difference is not None:  # modified after construction: it could not be loaded
            name = type(self).__name__
            raise CheckpointError(
                f"the model is not the {name} that its config builds: {difference}"
            )
        written = {"arguments": json.dumps(document["arguments"], sort_keys=True)}
        weights = _safetensors().torch.save(tensors, metadata=written)
        checksum = hashlib.sha256(weights).hexdigest()
        document["weights"] = {"bytes": len(weights), "sha256": checksum}
        # not runtime.json_text: models stand above the wall
        config = (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
        _check_bytes("the model's description", len(config))
        with os_errors_as(CheckpointError, folder, "cannot be written"):
            os.makedirs(folder, exist_ok=True)
            with _lock(Path(folder)):
                _replace(Path(folder), config, weights)

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> Self:
        """Load a model that :meth:`save_pretrained` wrote, in evaluation mode and on the CPU.

        Only JSON and safetensors are read, neither of which can run code. Every tensor keeps the
        dtype that it was saved with.

        Returns
        -------
        Pretrained
            An instance of the class that this is called on, with ``card`` filled in.
        """
        path = Path(folder)
        if not os.path.isdir(path):  # Path.is_dir() raises without permission
            raise CheckpointError(
                f"{path} is not a folder, expected one that holds {CONFIG} and {WEIGHTS}"
            )
        card = _read_card(path / CONFIG)
        architecture = _architecture(cls, card["architecture"], path / CONFIG)
        tensors = _read_weights(path / WEIGHTS, architecture, card)
        # it has the file's shapes, so is no larger than the file; the global random state is kept
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            model = architecture(**card["arguments"])
        n_outputs = model.config["n_outputs"]
        if card["stages"] is not None and not _are_stages(card["stages"], n_outputs):
            raise CheckpointError(
                f"{path / CONFIG} has {card['stages']!r:.50} as 'stages', expected the names of "
                f"{n_outputs} outputs"
            )
        with torch.inference_mode(False):
            model.load_state_dict(tensors, assign=True)
        model.card = card
        return model.eval()


def from_pretrained(folder: str | os.PathLike[str]) -> Pretrained:
    """Load the model in a folder, whatever its architecture; see :class:`Pretrained`.

    Parameters
    ----------
    folder : path
        Where :meth:`Pretrained.save_pretrained` wrote.

    Returns
    -------
    USleep or CNNTransformer
        In evaluation mode, on the CPU.
    """
    return Pretrained.from_pretrained(folder)


def _plain_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a model as they come back from JSON."""
    for name, value in config.items():
        if callable(value):
            raise CheckpointError(
                f"a model whose {name} is a callable cannot be saved, found {value!r}, expected a "
                "name, which JSON can hold"
            )
    arguments = _plain("config", dict(config))
    for name, value in arguments.items():
        _check_argument(name, value, "the model")
    return arguments


def _plain_field(name: str, value: Any) -> Any:
    """Return one field as it comes back from JSON; raise if the format does not allow its type."""
    value = _plain(name, value)
    if not isinstance(value, _FIELDS[name]):
        raise ArgumentError(f"{name} must be {_kinds(name)}, found {value!r}")
    return value


def _plain_stages(stages: Sequence[str] | None, n_outputs: int) -> list[str] | None:
    """Return the names of the outputs; five unnamed ones are the five stages of sleep."""
    if stages is None:
        return list(STAGES) if n_outputs == len(STAGES) else None
    if isinstance(stages, str) or not isinstance(stages, Sequence):
        raise ArgumentError(f"stages must be a sequence of names, found {stages!r}")
    if not _are_stages(list(stages), n_outputs):
        raise ArgumentError(f"stages must name the model's {n_outputs} outputs, found {stages!r}")
    return list(stages)


def _read_card(path: Path) -> dict[str, Any]:
    """Read ``config.json``, and check its version, its fields and their types."""
    card = _read_json(path)
    version = card.get("format_version") if isinstance(card, dict) else None
    if type(version) is not int or version < 1:  # True is an int too
        raise CheckpointError(
            f"{path} does not describe a model: its format_version is {version!r:.50}, expected "
            f"{FORMAT_VERSION}"
        )
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format_version {version}, newer than {FORMAT_VERSION}, which psdnorm "
            f"{psdnorm.__version__} reads: upgrade psdnorm"
        )
    card = dict.fromkeys(_OPTIONAL) | card
    for name, kinds in _FIELDS.items():
        if name not in card or not isinstance(card[name], kinds):
            found = f"{card[name]!r:.50} as {name!r}" if name in card else f"no {name!r}"
            raise CheckpointError(f"{path} has {found}, expected {_kinds(name)}")
    for name, value in card["arguments"].items():
        _check_argument(name, value, path)
    return card


def _are_stages(stages: list[Any], n_outputs: int) -> bool:
    return len(stages) == n_outputs and all(isinstance(name, str) for name in stages)


def _kinds(name: str) -> str:
    return " or ".join(_KINDS[kind] for kind in _FIELDS[name])


def _plain(name: str, value: Any) -> Any:
    """Return a value as JSON gives it back; NumPy's numbers and arrays become plain ones."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, default=_from_numpy)
        return json.loads(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{name} must be something that JSON can hold: {error}") from error


def _from_numpy(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"found a {type(value).__name__}")


def _read_json(path: Path) -> Any:
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist, expected the description of a model")
    _check_bytes(path, path.stat().st_size)
    with os_errors_as(CheckpointError, path, "cannot be read"):
        content = path.read_bytes()
    try:
        return json.loads(content.decode(), parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error


def _check_bytes(place: str | Path, size: int) -> None:
    if size > _MOST_BYTES:
        raise CheckpointError(f"{place} has {size} bytes, expected at most {_MOST_BYTES}")


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _check_argument(name: str, value: Any, path: Path | str) -> None:
    """Raise for an argument that no model takes, before a model is built with it."""
    held = list(value.values()) if isinstance(value, dict) else value
    items = held if isinstance(held, list) else [held]
    if len(items) > _MOST_ITEMS or any(isinstance(item, list | dict) for item in items):
        raise CheckpointError(
            f"{path} has {value!r:.50} as the argument {name!r}, expected a number, a name, or a "
            f"list or a dict of at most {_MOST_ITEMS} of them"
        )
    for item in items:
        if isinstance(item, int | float) and abs(item) > _MOST:
            raise CheckpointError(
                f"{path} has {item!r:.50} as the argument {name!r}, expected at most {_MOST}"
            )


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise MissingExtraError(
            'save_pretrained and from_pretrained need safetensors: pip install "psdnorm[models]"'
        ) from error
    return safetensors


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the state dict of a model, each tensor in its own memory on the CPU."""
    tensors = {}
    for key, value in model.state_dict().items():
        name = key.replace("_orig_mod.", "")  # where torch.compile puts a compiled submodule
        if not isinstance(value, Tensor):
            raise CheckpointError(
                f"the model's state {name} is a {type(value).__name__}, expected a tensor"
            )
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
        _check_finite(name, tensors[name], "the model")
    return tensors


def _check_finite(name: str, tensor: Tensor, place: str | Path) -> None:
    if tensor.is_floating_point() and not tensor.isfinite().all():
        raise CheckpointError(
            f"{place} has a value in {name} that is not finite, expected weights that can predict"
        )


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold a shared lock on a folder; if there is no other writer, remove leftovers of killed ones.

    Without filelock, as models depend only on torch and numpy.
    """
    if not fcntl:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # also where the file system has no locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in (CONFIG, WEIGHTS):
                for leftover in folder.glob(f".{name}.{_MARK}"):
                    leftover.unlink()
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def _replace(folder: Path, config: bytes, weights: bytes) -> None:
    """Put both files in place; if that fails, the old ones stay."""
    mark = os.urandom(8).hex()  # if two processes write here, the last wins or loading fails
    fresh_config, fresh_weights = folder / f".{CONFIG}.{mark}", folder / f".{WEIGHTS}.{mark}"
    try:
        for path, content in ((fresh_config, config), (fresh_weights, weights)):
            with path.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        before = (folder / CONFIG).read_bytes() if (folder / CONFIG).exists() else None
        os.replace(fresh_config, folder / CONFIG)
        try:
            os.replace(fresh_weights, folder / WEIGHTS)
        except BaseException:
            # the old weights are still there, and need their own config
            if before is None:
                (folder / CONFIG).unlink()
            else:
                fresh_config.write_bytes(before)
                os.replace(fresh_config, folder / CONFIG)
            raise
    finally:
        fresh_config.unlink(missing_ok=True)
        fresh_weights.unlink(missing_ok=True)


def _architecture(asked: type[Model], name: str, path: Path) -> type[Model]:
    if name == asked.__name__ and name in _ARCHITECTURES:
        return asked
    found = _ARCHITECTURES.get(name)
    if found is None:
        known = ", ".join(sorted(_ARCHITECTURES))
        raise CheckpointError(f"{path} describes a {name!r:.50}, expected one of {known}")
    if not issubclass(found, asked):
        raise CheckpointError(f"{path} describes a {name}, expected a {asked.__name__}")
    return found


def _read_weights(
    path: Path, architecture: type[Pretrained], card: dict[str, Any]
) -> dict[str, Tensor]:
    """Read the tensors, after checking that names and shapes match the architecture."""
    safetensors = _safetensors()
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist, expected the weights of a model")
    size, expected_size = path.stat().st_size, card["weights"].get("bytes")
    if size != expected_size:
        raise CheckpointError(
            f"{path} has {size} bytes, expected {expected_size!r:.50} as {CONFIG} says: it is "
            "truncated or from another save"
        )
    try:
        # reads only the header
        with safetensors.safe_open(path, framework="pt") as file:
            written = (file.metadata() or {}).get("arguments")
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            found: Layout = {
                name: (tuple(part.get_shape()), _DTYPES.get(part.get_dtype(), part.get_dtype()))
                for name, part in slices.items()
            }
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not a complete safetensors file: {error}") from error
    try:
        expected = _layout(architecture, card["arguments"], len(found))
    except Exception as error:  # anything, since the arguments are untrusted
        reason = str(error).split("\n")[0] or type(error).__name__
        raise CheckpointError(
            f"{path.with_name(CONFIG)} has arguments that do not build a "
            f"{architecture.__name__}: {reason}"
        ) from error
    difference = _difference(found, expected)
    if difference is not None:
        raise CheckpointError(
            f"{path} does not fit the {architecture.__name__} of {CONFIG}: {difference}"
        )
    if written != json.dumps(card["arguments"], sort_keys=True):
        raise CheckpointError(
            f"{path} was saved with other arguments than {CONFIG} says: one of them was changed"
        )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != card["weights"].get("sha256"):
        raise CheckpointError(
            f"{path} has another SHA-256 than the one that {CONFIG} says, expected the file that "
            "was saved with it: it is damaged or from another save"
        )
    tensors = safetensors.torch.load(content)
    for name, tensor in tensors.items():
        _check_finite(name, tensor, path)
    return tensors


def _layout(architecture: type[Pretrained], arguments: dict[str, Any], n_tensors: int) -> Layout:
    """Return the layout of a model built on the meta device, which should have ``n_tensors``."""
    # if the budget runs out inside torch's own no_grad(), that does not restore the mode
    grad_mode = torch.set_grad_enabled(torch.is_grad_enabled())
    with grad_mode, torch.device("meta"), _Budget(n_tensors):
        state = architecture(**arguments).state_dict()
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in state.items()}


class _Budget(TorchFunctionMode):
    """Stop a constructor that creates many more tensors than the file has."""

    def __init__(self, n_tensors: int) -> None:
        super().__init__()
        self.n_tensors = n_tensors
        self.calls_left = _MOST_CALLS_PER_TENSOR * (n_tensors + 1)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls_left -= 1
        if self.calls_left < 0:
            raise CheckpointError(f"it would have many more tensors than {self.n_tensors}")
        return func(*args, **(kwargs or {}))


def _difference(found: Layout, expected: Layout) -> str | None:
    """Return the first difference between two layouts; None if they are equal."""
    for name in sorted(found.keys() | expected.keys()):
        if name not in found:
            return f"the tensor {name} is missing"
        if name not in expected:
            return f"it has a tensor {name}, where none is expected"
        (shape, dtype), (expected_shape, expected_dtype) = found[name], expected[name]
        if shape != expected_shape:
            return f"{name} has shape {shape}, expected {expected_shape}"
        # a model may be saved in any precision
        if dtype != expected_dtype and not {dtype, expected_dtype} <= set(_FLOATS.values()):
            return f"{name} holds {dtype}, expected {expected_dtype}"
    return None
