"""The map of the package: which room may import which, and how one enters a room."""

import importlib.util
import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from missing_packages import hide

import psdnorm
import psdnorm.models
from psdnorm.errors import MissingExtraError

grimp = pytest.importorskip("grimp")

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
    "runtime",  # the wall stands before this one
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
BELOW_THE_WALL = tuple(f"psdnorm.{room}" for room in ROOMS[ROOMS.index("runtime") :])
# sub-folders of a room, each of which may import from those before it
FOLDERS = {
    "ops": ("hopper", "triton"),
    "evaluation": ("statistics",),
    "report": ("paper", "tables", "figures", "verdict"),
    "lab": ("simulate", "dissect", "study"),
}
# imported by the functions that need it, where triton is installed
ON_DEMAND = (
    "psdnorm.ops.triton.kernels",
    "psdnorm.ops.triton.convolution_kernels",
)
# modules that others than their package import, for a reason
PAST_FRONT_DOORS = {
    # Triton may be missing: its kernels are imported where they are launched
    ("psdnorm.ops.convolution", "psdnorm.ops.triton.convolution_kernels"),
}

SCRIPT = """
import importlib, json, sys
import torch, numpy
before = set(sys.modules)
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.fixture(scope="module")
def graph():
    """Who imports whom when the code runs: imports for type checkers count in front doors alone."""
    found = grimp.build_graph("psdnorm", cache_dir=None, exclude_type_checking_imports=True)
    every = grimp.build_graph("psdnorm", cache_dir=None)
    for package in packages(found) - {"psdnorm"}:  # names may be loaded when they are asked for
        for module in every.find_modules_directly_imported_by(package):
            found.add_import(importer=package, imported=module)
    return found


@pytest.fixture(scope="module")
def house():
    path = Path(__file__).parents[1] / "scripts" / "house.py"
    spec = importlib.util.spec_from_file_location("house", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.House()


def packages(graph):
    return {module for module in graph.modules if graph.find_children(module)}


def imports(graph):
    """All pairs of a module and one that it imports."""
    return [
        (module, other)
        for module in sorted(graph.modules)
        for other in sorted(graph.find_modules_directly_imported_by(module))
    ]


def within(module, package):
    return module == package or module.startswith(f"{package}.")


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


def test_every_module_has_a_room():
    assert {m.name for m in pkgutil.iter_modules(psdnorm.__path__)} == set(ROOMS)


def test_rooms_import_only_from_rooms_above_them(graph):
    place = {room: i for i, room in enumerate(ROOMS)}
    wrong = [
        (module, other)
        for module, other in imports(graph)
        if "psdnorm" not in (module, other)  # its names are loaded when they are asked for
        and place[module.split(".")[1]] < place[other.split(".")[1]]
    ]
    assert wrong == []


def test_every_folder_of_a_room_has_its_place(graph):
    deep = {package for package in packages(graph) if package.count(".") > 1}
    assert deep <= {f"psdnorm.{room}.{name}" for room, names in FOLDERS.items() for name in names}


def test_folders_import_only_from_folders_above_them(graph):
    wrong = {
        (f"{room}.{above}", f"{room}.{below}")
        for room, names in FOLDERS.items()
        for i, above in enumerate(names)
        for below in names[i + 1 :]
        for module, other in imports(graph)
        if within(module, f"psdnorm.{room}.{above}") and within(other, f"psdnorm.{room}.{below}")
    }
    assert wrong == set()


def test_no_module_imports_itself_through_others(graph):
    wrong = [
        (module, other)
        for module, other in imports(graph)
        if "psdnorm" not in (module, other)
        and graph.find_shortest_chain(importer=other, imported=module)
    ]
    assert wrong == []


def test_others_enter_a_package_by_its_front_door(graph):
    inner = graph.modules - packages(graph)
    past = {
        (module, other)
        for module, other in imports(graph)
        if other in inner and not within(module, other.rpartition(".")[0])
    }
    assert past == PAST_FRONT_DOORS


def test_no_front_door_hides_a_module_behind_a_name(graph):
    """``from package import name`` would find either, as it was imported before or not."""
    hidden = [
        f"{package}.{name}"
        for package in sorted(packages(graph) - {"psdnorm"})
        for name, thing in vars(importlib.import_module(package)).items()
        if f"{package}.{name}" in graph.modules and not inspect.ismodule(thing)
    ]
    assert hidden == []


def test_what_a_front_door_exports_has_a_docstring(graph):
    bare = [
        f"{package}.{name}"
        for package, name, thing in exported(graph)
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and not says_what_it_is(thing)
    ]
    assert bare == []


def exported(graph):
    """Package, name and object of all that front doors list for users."""
    for package in sorted(packages(graph)):
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            yield package, name, getattr(module, name)


def says_what_it_is(thing):
    """Whether it has a docstring of its own: dataclasses and named tuples get their signature."""
    own = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    return bool(own) and not own.startswith(f"{thing.__name__}(")


def test_hopper_is_entered_from_one_place(graph):
    inner = {m for m in graph.modules if within(m, "psdnorm.ops.hopper")}
    entries = {a for a, b in imports(graph) if b in inner and a not in inner}
    assert entries == {"psdnorm.ops.dispatch"}


def test_no_two_modules_and_no_two_classes_have_the_same_name(house):
    assert house.duplicate_names() == []


def test_few_small_modules_have_a_single_importer(house):
    assert len(house.single_importers()) <= 15, house.single_importers()


def test_the_public_names_are_exactly_these():
    assert psdnorm.__all__ == [
        "TMA",
        "PSDNorm",
        "adapt",
        "adapt_batchnorm",
        "calibrate",
        "convert_norm",
        "domains",
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
