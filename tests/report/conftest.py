"""What the tests of reports share."""

from pathlib import Path

import pytest

from psdnorm.evaluation import read_scores

KNOWN = {}  # scores by the content of their file


@pytest.fixture(scope="module", autouse=True)
def scores_are_read_once():
    """Folders of runs share most of their files of scores, which take time to read."""

    def read(path):
        content = Path(path).read_bytes() if Path(path).is_file() else None
        if content not in KNOWN:
            KNOWN[content] = read_scores(path)
        return KNOWN[content].copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("psdnorm.report.results.read_scores", read)
        yield
