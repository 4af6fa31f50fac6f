"""Files are written atomically, and a lock belongs to one process or thread at a time."""

import errno
import json
import os
import socket
import threading

import pytest
from filelock import FileLock

from psdnorm.errors import StoreError
from psdnorm.runtime import held, holder, written


def test_a_lock_is_held_by_one_and_says_by_whom(tmp_path):
    folder = tmp_path / "run"
    found = []

    def ask():
        with held(folder) as free:
            found.append((free, holder(folder)))

    with held(folder) as free:
        assert free
        other = threading.Thread(target=ask)
        other.start()
        other.join()
        ask()
    assert [free for free, _ in found] == [False, False]
    assert {(who.host, who.pid) for _, who in found} == {(socket.gethostname(), os.getpid())}
    assert holder(folder) is None
    assert list(folder.iterdir()) == []


def test_what_a_dead_process_signed_holds_nothing(tmp_path):
    (tmp_path / "lock").write_text(json.dumps({"host": "gone", "pid": 1, "since": 0}))
    assert holder(tmp_path) is None
    with held(tmp_path) as free:
        assert free


def test_a_lock_that_is_not_signed_yet_is_held_by_an_unknown_process(tmp_path):
    (tmp_path / "lock").touch()
    with FileLock(tmp_path / "lock"):
        assert holder(tmp_path).host == "unknown"


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_where_a_file_system_has_no_locks_everyone_is_given_one(tmp_path, monkeypatch, code):
    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(FileLock, "acquire", refuse)
    with held(tmp_path) as first, held(tmp_path) as second:
        assert first
        assert second


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file/run/lock cannot be written: Not a directory$"):  # noqa: SIM117
        with held(tmp_path / "file" / "run"):
            pass


def test_a_file_that_is_not_finished_leaves_the_old_one(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), written(path) as file:
        file.write(bytes([1 // 0]))
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"old")]
