"""EDF, EDF+ and BDF files put together byte by byte from the format's definition."""

import numpy as np

GAIN_UV = 0.1  # of a channel as it comes: 65535 steps from -3276.8 to 3276.7


def channel(label, samples, unit="uV", physical=(-3276.8, 3276.7), digital=(-32768, 32767)):
    """One channel; samples (n_records, n) are digital values."""
    return {
        "label": label,
        "unit": unit,
        "physical": physical,
        "digital": digital,
        "data": np.asarray(samples, "<i2").view(np.uint8).reshape(len(samples), -1),
        "n": len(samples[0]),
    }


def annotations(records, size=60):
    """One EDF+ annotation signal; records are bytes."""
    stored = np.array([np.frombuffer(r.ljust(2 * size, b"\x00"), np.uint8) for r in records])
    signal = channel("EDF Annotations", np.zeros((len(records), size)), unit="", physical=(-1, 1))
    return signal | {"data": stored}


def edf(
    channels,
    *,
    record_s=1,
    reserved="",
    n_records=None,
    date="03.02.01",
    time="22.10.05",
    patient="MCH-0234567 F 02-MAY-1951 Haagse_Harry",
    version=b"0       ",
):
    """The bytes of a file."""
    n = len(channels[0]["data"]) if n_records is None else n_records

    def fields(width, values):
        return b"".join(
            (value if isinstance(value, bytes) else str(value).encode()).ljust(width)[:width]
            for value in values
        )

    ns = len(channels)
    head = version + fields(80, [patient, "Startdate 03-FEB-2001 PSG-12 Jones Telefax"])
    head += fields(8, [date, time, 256 * (ns + 1)]) + fields(44, [reserved])
    head += fields(8, [n, record_s]) + fields(4, [ns])
    head += fields(16, [c["label"] for c in channels]) + fields(80, [""] * ns)
    head += fields(8, [c["unit"] for c in channels])
    for kind in ("physical", "digital"):
        for side in (0, 1):
            head += fields(8, [c[kind][side] for c in channels])
    head += fields(80, [""] * ns) + fields(8, [c["n"] for c in channels]) + fields(32, [""] * ns)
    return head + np.concatenate([c["data"] for c in channels], axis=1).tobytes()
