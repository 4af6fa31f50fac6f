"""Small models that stage, and recordings for them."""

import numpy as np
import torch
from cohort_folder import samples, signal

from psdnorm.models import USleep
from psdnorm.prepare.recipe import RECIPES
from psdnorm.staging import night_page


def small_network(n_chans=2, seed=0, norm="psd"):
    """An untrained U-Sleep whose words differ from epoch to epoch."""
    torch.manual_seed(seed)
    network = USleep(n_chans=n_chans, depth=3, n_time_filters=3, norm=norm, norm_depth=2).eval()
    last = [module for module in network.modules() if isinstance(module, torch.nn.Conv1d)][-1]
    eeg = np.stack([samples(35, seed=[9, number]) for number in range(n_chans)], axis=1) / 200
    x = torch.tensor(eeg, dtype=torch.float32).unsqueeze(0)  # (1, 35, C, T)
    with torch.no_grad():
        logits = network(x)  # (1, 5, 35)
        gain = 2 / logits.std(dim=(0, 2))
        last.weight *= gain[:, None, None]
        last.bias *= gain
        last.bias -= (gain[:, None] * logits).mean(dim=(0, 2))
    return network


def small_model(folder, n_chans=2, recipe="robust", **card):
    """A checkpoint of it; returns the folder."""
    document = RECIPES[recipe].to_dict() | {"n_channels": n_chans}
    small_network(n_chans).save_pretrained(folder, recipe=document, **card)
    return folder


def recording(path, **arguments):
    """Write an EDF of small nights; arguments as in :func:`cohort_folder.signal`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(signal(**arguments))
    return path


def flat(n_epochs=4, sfreq=100):
    """Digital values of a channel that was not connected."""
    return 0 * samples(n_epochs, sfreq)


def undrawn(monkeypatch):
    """Leave page and picture empty: drawing takes most of the time of a small night."""
    for write in ("write_page", "write_png"):
        monkeypatch.setattr(night_page, write, lambda path, *others: path.write_text(""))
