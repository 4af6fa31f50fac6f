"""Above the wall, psdnorm brings nothing that the user did not bring."""

import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
from absence import hide

import psdnorm
import psdnorm.models
from psdnorm.errors import MissingExtraError

# rooms below the wall may bring the libraries of their trade
BELOW_THE_WALL = (
    "psdnorm.runtime",
    "psdnorm.alignment",
    "psdnorm.store",
    "psdnorm.io",
    "psdnorm.cohorts",
    "psdnorm.prepare",
    "psdnorm.batches",
    "psdnorm.evaluation",
    "psdnorm.drift",
    "psdnorm.training",
    "psdnorm.experiments",
    "psdnorm.present",
    "psdnorm.report",
    "psdnorm.compare",
    "psdnorm.staging",
    "psdnorm.lab",
    "psdnorm.demo",
    "psdnorm.cli",
    "psdnorm.__main__",
)
# imported by the functions that need it, where triton is installed
ON_DEMAND = (
    "psdnorm.ops.triton.forward",
    "psdnorm.ops.triton.backward",
    "psdnorm.ops.conv.banded_kernels",
)

SCRIPT = """
import importlib, json, sys
import torch, numpy
before = set(sys.modules)
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def rooms_above_the_wall():
    names = [m.name for m in pkgutil.walk_packages(psdnorm.__path__, "psdnorm.")]
    return ["psdnorm", *(n for n in names if not n.startswith(BELOW_THE_WALL + ON_DEMAND))]


def test_the_core_loads_nothing_beyond_torch_and_numpy():
    names = rooms_above_the_wall()
    assert {"psdnorm.layer", "psdnorm.functional", "psdnorm.convert", "psdnorm.adaptation"} <= set(
        names
    )
    assert {"psdnorm.models.norms", "psdnorm.models.usleep"} <= set(names)
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(names)],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = json.loads(run.stdout)
    assert set(names) <= set(loaded)
    brought = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    assert brought == {"psdnorm"}


# each may import from those before it
ROOMS = (
    "constants",
    "errors",
    "ops",
    "recompute",
    "functional",
    "layer",
    "convert",
    "adaptation",
    "models",
    "runtime",
    "alignment",
    "store",
    "io",
    "cohorts",
    "prepare",
    "batches",
    "evaluation",
    "drift",
    "training",
    "experiments",
    "present",
    "report",
    "compare",
    "staging",
    "lab",
    "demo",
    "cli",
    "__main__",
)


def test_rooms_import_only_from_rooms_above_them():
    folder = Path(psdnorm.__file__).parent
    for place, room in enumerate(ROOMS):
        files = sorted((folder / room).rglob("*.py")) or [folder / f"{room}.py"]
        for file in files:
            imported = set(
                re.findall(r"^ *from psdnorm(?:\.| import )(\w+)", file.read_text(), re.M)
            )
            assert imported - set(ROOMS[: place + 1]) == set(), file


def test_every_module_has_a_room():
    assert {m.name for m in pkgutil.iter_modules(psdnorm.__path__)} == set(ROOMS)


def test_the_public_names_are_exactly_these():
    assert psdnorm.__all__ == [
        "TMA",
        "PSDNorm",
        "adapt_batchnorm",
        "calibrate",
        "convert_norm",
        "functional",
        "stage",
    ]
    for name in psdnorm.__all__:
        assert getattr(psdnorm, name) is not None


def test_the_public_models_are_exactly_these():
    assert psdnorm.models.__all__ == ["CNNTransformer", "USleep", "accelerate", "from_pretrained"]
    for name in psdnorm.models.__all__:
        assert getattr(psdnorm.models, name) is not None


def test_tma_without_scikit_learn_says_what_to_install(monkeypatch):
    monkeypatch.delattr(psdnorm, "TMA")
    hide(monkeypatch, "sklearn", "psdnorm.alignment")
    with pytest.raises(MissingExtraError) as caught:
        psdnorm.TMA  # noqa: B018
    assert str(caught.value) == 'TMA needs scikit-learn: pip install "psdnorm[sklearn]"'


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="BatchNorm"):
        psdnorm.BatchNorm  # noqa: B018
