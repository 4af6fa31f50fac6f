"""A folder of small nights that the tests of preparing share."""

import edf_files
import numpy as np

SCORES = "W\nN1\nN2\nR\n"
LABELS = ("C3", "C4", "M1", "M2")


def samples(n_epochs=4, sfreq=100, seed=0):
    """Digital values of one channel, (records of 30 s, samples), some 20 µV, mostly slow."""
    rng = np.random.default_rng(seed)
    slow = np.cumsum(rng.standard_normal(n_epochs * 30 * sfreq))
    slow -= np.convolve(slow, np.ones(sfreq) / sfreq, "same")
    return np.rint(60 * slow).clip(-32000, 32000).astype(int).reshape(n_epochs, -1)


def signal(seed=0, n_epochs=4, sfreq=100, labels=LABELS, simulated=False, **instead):
    """The bytes of an EDF; ``instead`` gives some channels other samples."""
    channels = [
        edf_files.channel(label, instead.get(label, samples(n_epochs, sfreq, [seed, number])))
        for number, label in enumerate(labels)
    ]
    content = edf_files.edf(channels, record_s=30)
    if simulated:
        content = content[:88] + b"Startdate X X X psdnorm simulated".ljust(80) + content[168:]
    return content


def cohort_folder(folder, *subjects, **others):
    """Write ``S01.edf`` and ``S01.txt`` for each subject, and others as they are given."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, subject in enumerate(subjects):
        (folder / f"{subject}.edf").write_bytes(signal(seed=number))
        (folder / f"{subject}.txt").write_text(SCORES)
    for name, content in others.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder
