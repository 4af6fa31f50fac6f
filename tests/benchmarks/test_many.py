"""The benchmark of many nights measures memory by night, and finds whatever went wrong."""

import csv
import dataclasses
import json
import os

import pytest

GOES_ON = "psdnorm: interrupted; run the same command again to resume\n"
ENDINGS = (".json", ".tsv", "-hypnogram.edf", ".txt", ".html", ".png")


@pytest.fixture
def benchmark(from_benchmarks):
    return from_benchmarks("many")


def run_of(benchmark, **fields):
    """A command that staged nothing and said nothing."""
    blank = {"code": 1, "seconds": 1.0, "stop_s": 0.0, "peak_mb": 1.0, "samples": [], "said": ""}
    blank |= {"complained": "", "finished": {}, "n_staged": 0, "rows": []}
    return benchmark.Run(**blank | fields)


def process_of(benchmark, megabytes):
    """A command whose memory was looked at twice a night."""
    from benchmarks.many import Sample

    looks = [Sample(1 + n, rss) for n, rss in enumerate(megabytes) for _ in range(2)]
    return run_of(benchmark, samples=looks, n_staged=len(megabytes))


def test_memory_that_stays_has_neither_growth_nor_slope_whatever_one_night_took(benchmark):
    run = process_of(benchmark, [500.0] * 50 + [900.0] + [500.0] * 49)
    assert benchmark.growth_mb(run) == 0
    assert abs(benchmark.slope_mb(run)) < 1


def test_memory_that_grows_by_2_mb_a_night_is_measured_as_such(benchmark):
    run = process_of(benchmark, [500.0 + 2 * n for n in range(100)])
    assert benchmark.slope_mb(run) == pytest.approx(200)
    assert benchmark.growth_mb(run) == pytest.approx(2 * 90, abs=2)


def test_figures_are_of_the_process_that_grew_more_and_of_nights_that_were_staged(benchmark):
    flat, steep = (process_of(benchmark, [500.0 + n * k for n in range(50)]) for k in (0, 3))
    for order in ([flat, steep], [steep, flat]):
        figures = benchmark.figures_of([*order, run_of(benchmark, seconds=7.0, peak_mb=9.0)])
        assert figures["slope"][0] == pytest.approx(300)
        assert figures["seconds a night"][0] == pytest.approx(2 / 100)
        assert (figures["nothing to do"][0], figures["peak memory"][0]) == (7.0, 9.0)


class Staged:
    """A folder of recordings, and three commands that staged it without a fault."""

    def __init__(self, benchmark, place):
        from benchmarks.many import FAILURES, make_folder

        self.nights = make_folder(place / "in", 14, 6, n_distinct=2, minutes=1)
        self.out = place / "out"
        self.out.mkdir()
        good = [name for name, kind in self.nights.kinds.items() if kind not in FAILURES]
        for name in good:
            kind = self.nights.kinds[name]
            for ending in ENDINGS:
                (self.out / f"{name}{ending}").write_text(kind)
            (self.out / f"{name}.txt").write_text("W\n" * self.nights.epochs[kind])
        (self.out / "summary.tsv").write_text("rows")
        self.failures = {name: FAILURES[self.nights.kinds[name]] for name in self._but(good)}
        rows = [self._row(name) for name in self.nights.files]
        done = dict.fromkeys(good, (1,))
        half = dict(list(done.items())[:4])
        self.runs = [
            run_of(
                benchmark,
                code=130,
                finished=half,
                n_staged=4,
                rows=[row for row in rows if row["name"] in half],
                complained=GOES_ON,
            ),
            run_of(benchmark, finished=done, n_staged=5, rows=rows, **self._words(4)),
            run_of(benchmark, finished=done, n_staged=0, rows=rows, **self._words(9)),
        ]

    def _but(self, good):
        return [name for name in self.nights.files if name not in good]

    def _row(self, name):
        flat = self.nights.kinds[name] == "flat"
        return {
            "name": name,
            "status": "failed" if name in self.failures else "staged",
            "verdict": "do not trust" if flat else "in range",
            "reason": f"psg.edf {self.failures[name]}" if name in self.failures else "n/a",
        }

    def _words(self, there):
        table = f"│ already there │ {there} │\n│ failed        │ {len(self.failures)} │\n"
        named = [f"  {self.nights.files[name]} {words}" for name, words in self.failures.items()]
        return {"said": table + "\n".join(named), "complained": "stage ━━━ 14/14 0:00:09\n"}

    def wrong(self):
        from benchmarks.many import what_is_wrong

        return what_is_wrong(self.nights, self.runs, self.out)

    def change(self, number, **fields):
        self.runs[number] = dataclasses.replace(self.runs[number], **fields)


@pytest.fixture
def staged(benchmark, tmp_path):
    return Staged(benchmark, tmp_path)


def test_recordings_have_one_name_and_lie_in_folders_of_their_own(staged):
    assert {path.name for path in staged.nights.files.values()} == {"psg.edf"}
    assert all(path.is_file() for path in staged.nights.files.values())
    kinds = list(staged.nights.kinds.values())
    bad = {"empty", "text", "truncated", "no EEG", "10 s", "flat"}
    assert set(kinds) == bad | {"night 0", "night 1"}
    assert all(kinds.count(kind) == 1 for kind in bad)


def test_what_went_well_is_not_complained_of(staged):
    assert staged.wrong() == []


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (lambda s: s.change(0, code=1), "interrupted command ended with 1, expected 130"),
        (lambda s: s.change(0, complained="Traceback"), "ended its errors with 'Traceback'"),
        (lambda s: s.change(0, n_staged=0), "0 nights were staged when the command was"),
        (lambda s: s.change(0, rows=s.runs[0].rows[1:]), "does not have what it finished once"),
        (lambda s: s.change(1, code=0), "second command: it ended with 0, expected 1"),
        (lambda s: s.change(1, rows=[*s.runs[1].rows, s.runs[1].rows[0]]), "each recording once"),
        (lambda s: s.change(1, rows=s.runs[1].rows[1:]), "each recording once"),
        (lambda s: s.change(1, complained="13/14"), "its progress did not come to 14/14"),
        (lambda s: s.change(1, finished=s.runs[1].finished | {"subject-0000-psg": (2,)}), "again"),
        (lambda s: s.change(2, said=""), "None nights were said to be there already, expected 9"),
        (lambda s: s.change(2, n_staged=1), "the third command staged 1 nights, expected none"),
        (lambda s: s.change(2, said=s.runs[2].said.replace("empty", "")), "did not name subject-"),
    ],
)
def test_what_went_wrong_with_a_command_is_told(staged, tamper, said):
    tamper(staged)
    assert any(said in sentence for sentence in staged.wrong())


@pytest.mark.parametrize(
    ("column", "of", "value", "said"),
    [
        ("status", "night 0", "failed", "not those nights failed"),
        ("reason", "10 s", "n/a", "the summary says of subject-"),
        ("verdict", "flat", "in range", "is flat and its verdict 'in range'"),
    ],
)
def test_a_row_of_the_summary_that_is_wrong_is_told(staged, column, of, value, said):
    kinds = staged.nights.kinds
    rows = [
        row | {column: value} if kinds[row["name"]] == of else row for row in staged.runs[1].rows
    ]
    staged.change(1, rows=rows)
    assert any(said in sentence for sentence in staged.wrong())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("subject-0000-psg.png", "", "1 files are missing or empty, subject-0000-psg.png among"),
        (".1a2b.partial", "half", "1 files are left over, .1a2b.partial among them"),
        ("subject-0000-psg.txt", "W", "subject-0000-psg.txt does not have the"),
        ("subject-0000-psg.tsv", "other", "copies of the same recording came out differently"),
    ],
)
def test_an_output_that_is_wrong_is_told(staged, name, content, said):
    (staged.out / name).write_text(content)
    assert any(said in sentence for sentence in staged.wrong())


def test_only_finished_nights_count_as_such(benchmark, tmp_path):
    from benchmarks.many import finished_in

    for name, finished in (("whole", True), ("half", False)):
        for ending in ENDINGS:
            path = tmp_path / f"{name}{ending}"
            path.write_text(json.dumps({"finished": finished}))
            os.utime(path, ns=(0, 5))
    assert finished_in(tmp_path) == {"whole": (5,) * 6}


@pytest.mark.slow
def test_a_command_that_could_not_begin_is_no_figure(benchmark, tmp_path):
    with pytest.raises(RuntimeError, match=r"exit code 2: psdnorm: .* matches no recording"):
        benchmark.run_command(tmp_path, tmp_path / "out", None)


@pytest.mark.slow
def test_twelve_nights_are_staged_interrupted_resumed_and_their_table_written(
    benchmark, tmp_path, capsys
):
    table = tmp_path / "many.csv"
    few = ["--nights", "12", "--bad", "6", "--distinct", "2", "--minutes", "1"]
    code = benchmark.main([*few, "--csv", str(table)])
    assert (code, "all checks and bars are met" in capsys.readouterr().out) == (0, True)
    with table.open() as file:
        rows = {row["what"]: row for row in csv.DictReader(file)}
    assert float(rows["seconds a night"]["figure"]) > 0
    assert float(rows["peak memory"]["figure"]) > 100
    assert (rows["growth"]["bar"], rows["growth"]["nights"]) == ("100.0", "12")
