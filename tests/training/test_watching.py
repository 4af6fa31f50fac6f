"""A person sees where a training is; a file sees a line per epoch."""

import io

from psdnorm.training import Bars

ROW = {
    "epoch": 1,
    "step": 20,
    "train_loss": 1.25,
    "validation_loss": 1.5,
    "validation_balanced_accuracy": 0.625,
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(file):
    bars = Bars(file)
    bars.begin_epoch(1, 4, 10)
    bars.step(7, 1.75)
    bars.end_epoch(ROW)
    return file.getvalue()


def test_a_terminal_gets_a_bar_with_losses_and_balanced_accuracy():
    last = shown(Terminal())
    for part in ("epoch 2", "10/10", "loss 1.2500, validation 1.5000, balanced accuracy 0.625"):
        assert part in last


def test_a_file_gets_one_line_per_epoch():
    expected = "epoch 2: loss 1.2500, validation 1.5000, balanced accuracy 0.625\n"
    assert shown(io.StringIO()) == expected
