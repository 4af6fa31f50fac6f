"""Models of braindecode, which is installed without most of what it needs."""

import importlib
import importlib.util
import sys
import types
from pathlib import Path
from unittest import mock

import pytest
import torch  # noqa: F401 - before what is imported below is forgotten


def braindecode_model(name, module):
    """Return a model by its name and module; skip the test where braindecode is absent."""
    found = importlib.util.find_spec("braindecode")
    if found is None:
        pytest.skip("braindecode is absent: pip install --no-deps braindecode")
    folder = Path(found.submodule_search_locations[0])
    # packages without their __init__, which would import torchaudio, mne and every other model
    stand_ins = {"braindecode": types.ModuleType("braindecode")}
    stand_ins["braindecode"].__path__ = [str(folder)]
    stand_ins["braindecode.models"] = types.ModuleType("braindecode.models")
    stand_ins["braindecode.models"].__path__ = [str(folder / "models")]
    for absent in ("mne", "mne.utils", "pandas", "pydantic", "torchaudio", "torchinfo"):
        stand_ins[absent] = mock.MagicMock()
    stand_ins["mne.utils"]._soft_import = lambda *args, **kwargs: False
    documented = types.SimpleNamespace(NumpyDocstringInheritanceInitMeta=type)
    stand_ins["docstring_inheritance"] = documented
    with mock.patch.dict(sys.modules, stand_ins):
        return getattr(importlib.import_module(f"braindecode.models.{module}"), name)
