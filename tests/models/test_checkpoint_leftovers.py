"""What a killed process left of a checkpoint goes with the next one that is written."""

import os
from pathlib import Path

import pytest

from psdnorm.models import USleep, from_pretrained

WHOLE = {"config.json", "model.safetensors"}


def model():
    return USleep(n_times=60, sfreq=20, depth=1, n_time_filters=2)


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def killed(tmp_path, monkeypatch):
    """A folder in which a process was killed before it put its files in place."""

    class KilledError(BaseException):
        pass

    def die(*arguments):
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        patch.setattr(Path, "unlink", lambda *arguments, **options: None)
        with pytest.raises(KilledError):
            model().save_pretrained(tmp_path)
    assert len(names(tmp_path)) == 2
    assert all(name.startswith(".") for name in names(tmp_path))
    return tmp_path


def test_the_next_checkpoint_removes_it(killed):
    model().save_pretrained(killed)
    assert names(killed) == WHOLE


def test_hidden_files_of_others_stay(killed):
    others = {".config.json.swp", ".model.safetensors.0123456789abcdeX", ".notes"}
    for name in others:
        (killed / name).touch()
    model().save_pretrained(killed)
    assert names(killed) == WHOLE | others


def test_what_another_process_is_still_writing_stays(tmp_path, monkeypatch):
    replace, within = os.replace, []

    def write_another_first(source, target):
        if not within:
            within.append(source)
            model().save_pretrained(tmp_path)
            assert source.exists()
        replace(source, target)

    monkeypatch.setattr(os, "replace", write_another_first)
    model().save_pretrained(tmp_path)
    assert within
    assert names(tmp_path) == WHOLE
    from_pretrained(tmp_path)
