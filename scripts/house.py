"""Print how large the package is and how well its files can be found: ``python scripts/house.py``.

Nothing fails here; the limits that are enforced are in ``tests/test_imports.py``.
"""

import ast
import sys
from collections import Counter, defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
SMALL = 120  # lines: a module below this that has one importer could live inside it


class House:
    """The modules of the package and who imports whom, with names followed through front doors."""

    def __init__(self, source: Path = SOURCE):
        self.files = {_module(path, source): path for path in sorted(source.rglob("*.py"))}
        self.lines = {
            name: len(path.read_text(encoding="utf-8").splitlines())
            for name, path in self.files.items()
        }
        self._names = {name: self._imported(name) for name in self.files}

    def is_package(self, name: str) -> bool:
        """Whether a module is the front door of a package."""
        return self.files[name].name == "__init__.py"

    def _imported(self, name: str) -> dict[str, tuple[str, str]]:
        """Return what a module imports from the package: alias → (module, name or "")."""
        found = {}
        for node in ast.walk(ast.parse(self.files[name].read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {a.name: (a.name, "") for a in node.names if a.name in self.files}
            elif isinstance(node, ast.ImportFrom) and node.module in self.files:
                for alias in node.names:
                    module = f"{node.module}.{alias.name}"
                    target = (module, "") if module in self.files else (node.module, alias.name)
                    found[alias.asname or alias.name] = target
        return found

    def importers(self) -> dict[str, set[str]]:
        """Return who uses each module; a front door is no user of what it exports."""
        users = defaultdict(set)
        for name, imported in self._names.items():
            if self.is_package(name):
                continue
            for module, wanted in imported.values():
                while self.is_package(module) and wanted in self._names[module]:
                    module, wanted = self._names[module][wanted]
                users[module].add(name)
        return users

    def single_importers(self) -> list[str]:
        """Return small modules that exactly one other imports."""
        users = self.importers()
        return [
            name
            for name in self.files
            if not self.is_package(name) and len(users[name]) == 1 and self.lines[name] < SMALL
        ]

    def duplicate_names(self) -> list[str]:
        """Return names of files that occur in more than one folder, and of classes in two files."""
        names = [path.stem for path in self.files.values() if not path.stem.startswith("__")]
        for path in self.files.values():
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names += [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        return sorted(name for name, n in Counter(names).items() if n > 1)


def _module(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def main() -> None:
    """Print the figures, each beside its limit."""
    house = House(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE)
    single, twice = house.single_importers(), house.duplicate_names()
    print(f"files                                      {len(house.files):6,}  (at most 155)")
    n_lines = sum(house.lines.values())
    print(f"lines                                      {n_lines:6,}  (at most 35,000)")
    print(f"under {SMALL} lines with a single importer      {len(single):6,}  (at most 15)")
    print(f"names of files or classes that occur twice {len(twice):6,}  (none)")
    for name in single:
        print(f"  single importer: {name}, {house.lines[name]} lines, by {house.importers()[name]}")
    for name in twice:
        print(f"  twice: {name}")


if __name__ == "__main__":
    main()
