"""Norms are told apart with and without colour, and labels do not overlap."""

import itertools

import numpy as np
import pytest

from psdnorm.present.figure import STAGE_COLOURS, look_of, spread
from psdnorm.training import NORM_NAMES


def luminance(colour):
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_no_two_norms_share_a_marker():
    markers = [look_of(norm).marker for norm in [*NORM_NAMES, "another"]]
    assert len(set(markers)) == len(markers)


def test_neighbouring_norms_of_one_colour_have_other_lines():
    for one, other in itertools.combinations(NORM_NAMES, 2):
        a, b = look_of(one), look_of(other)
        assert (a.colour, a.line) != (b.colour, b.line)


def test_stages_grow_lighter_from_the_bottom_of_a_stack():
    levels = [luminance(colour) for colour in STAGE_COLOURS.values()]
    assert (np.diff(levels) > 0.05).all()


@pytest.mark.parametrize("wanted", [[0.5] * 9, [0.1, 0.9], [0.3, 0.31, 0.2, 0.32, 0.9], []])
def test_labels_keep_their_distance_and_their_order(wanted):
    placed = spread(wanted, 0.06)
    assert (np.diff(sorted(placed)) >= 0.06 - 1e-12).all()
    assert [placed[i] for i in np.argsort(wanted, kind="stable")] == sorted(placed)
    assert np.mean(placed or [0]) == pytest.approx(np.mean(wanted or [0]))
