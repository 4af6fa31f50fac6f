"""Whatever is wrong with an XML scoring, the answer is one of our own errors."""

import numpy as np
import pytest
from scorings import nsrr, profusion

from psdnorm.errors import PsdnormError
from psdnorm.io import read_stages


def mutated(text, rng):
    """Damage an XML: characters replaced, cut out or doubled, tokens put in."""
    content = bytearray(text.encode())
    tokens = [b"<", b">", b"&", b"&a;", b"]]>", b"<!DOCTYPE x>", b"-1", b"nan", b"1e9", b"\x00\xff"]
    for _ in range(rng.integers(1, 6)):
        place = int(rng.integers(len(content)))
        end = place + int(rng.integers(1, 12))
        kind = rng.integers(4)
        if kind == 0:
            content[place] = rng.integers(256)
        elif kind == 1:
            del content[place:end]
        elif kind == 2:
            content[place:place] = content[place:end]
        else:
            content[place:place] = tokens[rng.integers(len(tokens))]
    return bytes(content)


def fuzz(path, n):
    rng = np.random.default_rng(11)
    events = [(f"Stage {1 + i % 3} sleep|{1 + i % 3}", 30 * i, 30) for i in range(6)]
    texts = (nsrr(*events), profusion(0, 1, 2, 3, 5, 9))
    messages = []
    for index in range(n):
        path.write_bytes(mutated(texts[index % 2], rng))
        try:
            assert read_stages(path, 300).shape == (10,)
        except PsdnormError as error:
            messages.append(str(error))
    assert all(str(path) in message and "\n" not in message for message in messages)
    return len(messages)


def test_damaged_xml_gives_only_our_own_errors(tmp_path):
    assert 100 < fuzz(tmp_path / "n.xml", 500) < 500


@pytest.mark.slow
def test_much_damaged_xml_gives_only_our_own_errors(tmp_path):
    assert 2000 < fuzz(tmp_path / "n.xml", 10_000) < 10_000
