import pytest
from small_runs import small_store


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    return small_store(tmp_path_factory.mktemp("store"))
