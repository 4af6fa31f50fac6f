"""A folder is searched to its ends: what cannot be taken from it is named."""

import os

import pytest

from psdnorm.cohorts import file_layout as layout
from psdnorm.cohorts import find_nights
from psdnorm.errors import RecordingError


@pytest.fixture
def root(download, typed):
    """Two nights, one of them two folders down."""
    return download(
        {
            "a.edf": typed.signal(C3=1),
            "a.txt": "W\nN3\nR\n",
            "deep/er/b.edf": typed.signal(C3=1),
            "deep/er/b.txt": "W\nN3\nR\n",
        }
    )


def found(source):
    nights, problems, _ = find_nights("folder", source)
    return [night.subject for night in nights], [str(problem) for problem in problems]


def close(monkeypatch, name):
    real = layout.Path.iterdir

    def iterdir(path):  # tests may run as root, whom nothing is closed to
        if path.name == name:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(layout.Path, "iterdir", iterdir)


@pytest.mark.parametrize("pattern", ["", "{subject}/er/b.edf", "**/*.edf", "*/*/{subject}.edf"])
def test_a_closed_folder_is_named(root, download, typed, monkeypatch, pattern):
    download({"open/er/b.edf": typed.signal(C3=1), "open/er/b.txt": "W\n"})
    close(monkeypatch, "deep")
    _, problems = found(root / pattern if pattern else root)
    assert f"{root}/deep cannot be read: Permission denied" in problems


@pytest.mark.parametrize("pattern", ["", "{subject}/b.edf", "**/*.edf", "*/{subject}.edf"])
def test_a_folder_that_shows_its_names_alone_is_named_once(
    root, download, typed, let_nobody_enter, pattern
):
    contents = {"b.edf": typed.signal(C3=1), "b.txt": "W\nN3\nR\n", "c.edf": b"", "d/e.edf": b""}
    for folder in ("open", "closed"):
        download({f"{folder}/{name}": content for name, content in contents.items()})
    let_nobody_enter(root / "closed")
    subjects, problems = found(root / pattern if pattern else root)
    assert {"b", "open"} & set(subjects)
    assert [p for p in problems if "closed" in p] == [
        f"{root}/closed cannot be entered: Permission denied"
    ]


def test_a_closed_root_says_so(root, monkeypatch):
    close(monkeypatch, root.name)
    with pytest.raises(RecordingError, match=r"matches no recording: .* Permission denied"):
        find_nights("folder", root)


def test_what_cannot_be_looked_at_is_named(root, monkeypatch):
    real = layout.Path.stat

    def stat(path, **options):
        if path.name == "deep":
            raise PermissionError(13, "Permission denied")
        return real(path, **options)

    monkeypatch.setattr(layout.Path, "stat", stat)
    assert found(root) == (["a"], [f"{root}/deep cannot be read: Permission denied"])


def test_links_are_followed(root, tmp_path, typed):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "c.edf").write_bytes(typed.signal(C3=1))
    (elsewhere / "c.txt").write_text("W\nN3\nR\n")
    os.symlink(elsewhere, root / "link")
    os.symlink(root / "a.edf", root / "d.edf")
    os.symlink(root / "a.txt", root / "d.txt")
    assert found(root) == (["a", "b", "c", "d"], [])


def test_links_that_lead_back_end(root, tmp_path, typed):
    (tmp_path / "beside.edf").write_bytes(typed.signal(C3=1))
    for name, target in {"self": root, "up": root.parent, "again": root / "deep"}.items():
        os.symlink(target, root / "deep" / name)
    os.symlink("knot", root / "knot")
    assert found(root) == (["a", "b"], [])


@pytest.mark.parametrize("pattern", ["", "*.*"])
def test_a_signal_that_is_no_file_is_named(root, pattern):
    (root / "dir.EDF").mkdir()
    os.symlink(root / "gone.edf", root / "x.edf")
    os.mkfifo(root / "y.edf")
    (root / "folder.txt").mkdir()
    subjects, problems = found(root / pattern)
    assert "a" in subjects
    assert problems == [
        f"{root}/dir.EDF is a folder, expected a file",
        f"{root}/x.edf is a link to a file that does not exist",
        f"{root}/y.edf is not a file",
    ]


@pytest.mark.parametrize("name", ["z.edf.gz", "z.EDF.xz", "z.bdf.zip"])
def test_a_compressed_signal_is_named(root, download, name):
    download({name: b"\x1f\x8b", "a.edf.gz": b"\x1f\x8b", "notes.txt.gz": b"\x1f\x8b"})
    assert found(root) == (["a", "b"], [f"{root}/{name} is compressed, expected it unpacked"])
