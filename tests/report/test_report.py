"""The page of a report: offline, escaped, small, and with what it promises inside."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import statistics
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from record_makers import make_record

from stridesmith.backends.devices import discover
from stridesmith.cli import main
from stridesmith.ir.layout.layout import Layout
from stridesmith.report import charts, layouts
from stridesmith.report import page as pages
from stridesmith.report.advice import _waiting, findings
from stridesmith.report.tasks import TaskReport, task_report
from stridesmith.search.records.database import Database
from stridesmith.search.records.record import Foretold, Record
from stridesmith.search.records.run_facts import RunFacts
from stridesmith.search.tuning.importance import importances, worth_of
from stridesmith.search.workers.bench import Bench
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

pytest.importorskip("vl_convert")
pytest.importorskip("jinja2")
WORK = workload("matmul", m=12, n=20, k=8)
FIXED = {"a": "fixed", "b": "fixed", "c": "fixed"}
HOSTILE = "<img src=x onerror=alert(1)></script>`'\"&"
TRIALS = 24


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search with made-up times: real candidates, one of each three failed, the winner raced."""
    path = tmp_path_factory.mktemp("report") / "best.db"
    target, rng = discover("cpu", 2), np.random.default_rng(0)
    space = generate(WORK.func, target, FIXED)
    sketch = space.sketches[0]
    facts: dict[str, Any] = {
        "script": WORK.script, "workload": "matmul", "params": dict(WORK.params), "interface": FIXED, "run": "r1",
        "target": target.to_json(), "sketch": sketch.name, "space_version": space.version,
    }  # fmt: skip
    with Database(path) as database:
        for number, row in enumerate(sketch.draw(rng, TRIALS).tolist(), 1):
            us = None if number % 3 == 0 else 5.0 + 40.0 / number
            trace = sketch.trace(row).to_json() if number == TRIALS - 1 else None
            told = Foretold(model="learned", batch=1 + number // 12, score=-float(np.log2(us or 9.0)))
            stage = "race" if number == TRIALS - 1 else "trial"
            database.put_record(make_record(
                us, trial=number, choice=row, trace=trace, foretold=told, stage=stage, created=float(number), **facts
            ))  # fmt: skip
        database.put_run(RunFacts(
            name="r1", seconds=9.0, activities={"building": 6.0, "measuring": 3.0}, trials=TRIALS, peak_gflops=100.0,
            bandwidth=2e10, baseline_us=60.0,
        ))  # fmt: skip
    return path


@pytest.fixture(scope="module")
def task(db: Path) -> TaskReport:
    with Database(db, read_only=True) as database, Bench() as bench:
        return task_report(database.winners()[0], database, bench, peers={"torch": 12.0})


@pytest.fixture(scope="module")
def html(db: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert main(["report", "--db", str(db), "-o", str(path), "--format", "json"]) == 0
    return path.read_text(encoding="utf-8")


def unpacked(html: str, name: str) -> str:
    packed = re.search(rf'id="{name}">([^<]*)<', html)
    assert packed
    return gzip.decompress(base64.b64decode(packed[1])).decode()


class Tags(HTMLParser):
    """Every tag with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.mark.skipif(shutil.which("chromium") is None, reason="a browser is needed")
def test_charts_are_drawn_wherever_they_are(html: str, tmp_path: Path) -> None:
    """All of them, also those far below a small window."""
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    page = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}",
         "--window-size=1280,300", "--virtual-time-budget=10000", "--dump-dom", f"file://{tmp_path / 'page.html'}"],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    places = re.findall(r'data-chart="[^"]*"', page)
    assert places and len(re.findall(r'<svg[^>]*class="marks"', page)) == len(places)


def test_the_page_asks_for_nothing(html: str) -> None:
    """No address to load from, a policy that allows none, and at most 2 MB."""
    body = next(iter(json.loads(unpacked(html, "data"))["bodies"].values()))
    for tag, attributes in Tags(html).found + Tags(body).found:
        assert tag not in ("link", "iframe", "object", "embed", "base", "audio", "video")
        assert not {"src", "srcset", "data", "background", "action"} & set(attributes), (tag, attributes)
        assert (attributes.get("href") or "#").startswith("#")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy and "default-src 'none'" in policy[1] and "http" not in policy[1]
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest", html)
    assert len(html.encode()) < 2e6


def test_the_page_has_what_it_promises(html: str) -> None:
    """For the task a chart of each kind, its findings, decisions, code and layouts."""
    data = json.loads(unpacked(html, "data"))
    kinds = {name.partition("-")[2] for name in data["charts"]}
    assert kinds == {"search", "decisions", "predictions", "seconds", "roofline"}
    (body,) = data["bodies"].values()
    for words in ("What limits it", "stridesmith --workload matmul --shape m=12,n=20,k=8", "sch.", "Lowered program",
                  "Inner loop", "Decisions and their alternatives", "untuned"):  # fmt: skip
        assert words in body, words
    assert "window.vegaEmbed=" in unpacked(html, "vega")


def test_names_are_escaped(db: Path, tmp_path: Path) -> None:
    """A record from elsewhere whose names are HTML comes out as text, in the page and in what unfolds."""
    path = tmp_path / "hostile.db"
    with Database(db, read_only=True) as database, Database(path) as hostile:
        for record in database.every():
            hostile.put_record(record.changed(workload=HOSTILE, versions={"stridesmith": HOSTILE}, run=HOSTILE[:20]))
    page = tmp_path / "report.html"
    assert main(["report", "--db", str(path), "-o", str(page)]) == 0
    html = page.read_text(encoding="utf-8")
    (body,) = json.loads(unpacked(html, "data"))["bodies"].values()
    for text in (html, body):
        assert "img" not in [tag for tag, _ in Tags(text).found]
        assert not [a for _, attributes in Tags(text).found for a in attributes if a.startswith("on")]
    assert "&lt;img src=x onerror=alert(1)&gt;" in html
    assert html.count("</script>") == 3


def test_a_page_of_many_tasks_stays_small(task: TaskReport, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is left out, from the task with least to gain on: first code and pictures, then all of it."""
    monkeypatch.setattr(pages, "_vega", lambda: "window.vegaEmbed=1;")
    tasks = [
        replace(task, name=f"task {number}", record=replace_id(task.record, number), count=100 - number)
        for number in range(12)
    ]
    everything = pages.page(pages.Subject("many", "best.db"), tasks)
    assert len(json.loads(unpacked(everything, "data"))["bodies"]) == 12 and "do not fit here" not in everything
    shortest = limited(tasks, 1, monkeypatch)
    assert (shortest.count('<details class="task card"'), shortest.count("do not fit here")) == (1, 1)
    less = limited(tasks, len(everything) - 1, monkeypatch)
    bodies = json.loads(unpacked(less, "data"))["bodies"]
    assert len(bodies) == 12 and 0 < sum("Lowered program" in body for body in bodies.values()) < 12
    few = limited(tasks, len(shortest) + 5000, monkeypatch)
    assert 1 < few.count('<details class="task card"') < 12 and "task 0" in few and "task 11" not in few


def test_commands_name_the_database_where_the_environment_does_not(
    task: TaskReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is pasted acts on the same records, and on the same device."""
    monkeypatch.setattr(pages, "_vega", lambda: "window.vegaEmbed=1;")
    for named, words in ((True, " --db best.db"), (False, "")):
        entry = pages._entry(task, pages.Subject("x", "best.db", named=named), 60)
        assert entry["show"] == f"stridesmith show{words} --record {task.record.id}"
        assert entry["command"].endswith(words) and ("--db" in entry["command"]) == named
        page = pages.page(pages.Subject("one", "best.db", named=named), [task])
        assert (" --db best.db" in unpacked(page, "data")) == named


def limited(tasks: list[TaskReport], most: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page of at most so many bytes, or the shortest that there is."""
    monkeypatch.setattr(pages, "MOST_BYTES", most)
    html = pages.page(pages.Subject("many", "best.db"), tasks)
    assert len(html.encode()) <= most or most == 1
    return html


def replace_id(record: Record, number: int) -> Record:
    return record.changed(id=f"{number:016x}")


def test_of_many_tasks_the_slowest_are_read(db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With `--limit` those that take most time, and a sentence about the others."""
    path, page = tmp_path / "two.db", tmp_path / "report.html"
    with Database(db, read_only=True) as database, Database(path) as both:
        (winner,) = database.winners()
        slow = workload("matmul", m=3, n=4, k=5).script
        device = winner.device.to_json()
        other = make_record(9e4, script=slow, workload="slow", params={}, interface=FIXED, target=device)
        for record in (winner, other):
            both.put_record(record)
    assert main(["report", "--db", str(path), "-o", str(page), "--limit", "1"]) == 0
    html, said = page.read_text(encoding="utf-8"), capsys.readouterr().out
    assert "the 1 of 2 tasks that take most time" in said and "1 tasks" in said
    assert "the 1 of 2 tasks that take most time" in html and "<h1>slow</h1>" in html


def test_the_search_curve_has_every_candidate(task: TaskReport) -> None:
    """Times, failures by kind, and the best so far, which never rises."""
    spec = charts.search_curve(task)
    assert spec is not None
    rows = spec["data"]["values"]
    assert len(rows) == TRIALS and sum("failed" in row for row in rows) == TRIALS // 3
    best = [row["best"] for row in rows if "best" in row]
    assert best == sorted(best, reverse=True) and best[-1] == pytest.approx(task.latency_us, rel=1e-3)
    thin = charts.search_curve(task, most=8)
    assert thin is not None and {r["n"] for r in thin["data"]["values"]} >= {r["n"] for r in rows if "failed" in r}


def test_many_failures_are_thinned_out() -> None:
    """Of 10 000 failures and one of another kind about 600 are drawn, the rare one among them."""
    rows = [{"n": n, "failed": "oom" if n == 7777 else "refused"} for n in range(1, 10_001)]
    kept = charts._thinned([*rows, {"n": 10_001, "us": 3.0, "id": "x"}], 600)
    assert 500 < len(kept) < 700 and {"oom", "refused"} <= {row.get("failed") for row in kept}
    assert kept[-1]["n"] == 10_001


def test_the_roofline_has_all_marks(task: TaskReport) -> None:
    """Candidates, the best, the untuned program and the peers, each at its GFLOP/s below the roof."""
    spec = charts.roofline([task])
    assert spec is not None
    marks = {row["label"]: row for row in spec["data"]["values"] if row["kind"] != "candidate"}
    assert set(marks) == {"best", "torch", "untuned"}
    flops = WORK.flops
    assert marks["torch"]["y"] == pytest.approx(flops / 12.0 * 1e-3, rel=1e-3)
    assert sum(row["kind"] == "candidate" for row in spec["data"]["values"]) == len(task.measured)


def test_a_perfect_prediction_lies_on_the_diagonal(task: TaskReport) -> None:
    """The constant that a batch shares is taken out; the order was foretold."""
    found = charts.predictions(task)
    assert found is not None
    spec, words = found
    assert all(row["told"] == pytest.approx(row["us"], rel=1e-3) for row in spec["data"]["values"])
    assert "rank correlation of 1.00" in words


def test_a_prediction_far_from_the_truth_is_drawn(task: TaskReport) -> None:
    """Scores of a record from elsewhere may be any numbers."""
    scores = iter((9e5, -9e5) * TRIALS)
    wild = [replace_score(record, next(scores)) for record in task.records]
    found = charts.predictions(replace(task, records=wild))
    assert found is not None and all(0 < row["told"] < 1e30 for row in found[0]["data"]["values"])


def replace_score(record: Record, score: float) -> Record:
    return record if record.foretold is None else record.changed(foretold=Foretold(
        model=record.foretold.model, batch=record.foretold.batch, score=score
    ))  # fmt: skip


def test_what_matters_is_found_by_importances() -> None:
    """Of two choices the one that decides the time has most of the importance, and its cost is what it costs."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(60):
        tile, other = rng.choice(["1", "2", "4"]), rng.choice(["a", "b"])
        rows.append(({"tile": str(tile), "other": str(other)}, float({"1": 40, "2": 20, "4": 10}[tile] + rng.random())))
    found = importances(rows)
    assert sum(found.values()) == pytest.approx(1.0) and found["tile"] > 0.8


def test_decisions_of_a_search_have_what_was_tried(task: TaskReport) -> None:
    """Each with the winner's alternative and the best of every other; of too few candidates nothing is said."""
    assert task.worth and task.worth[0].importance == max(w.importance for w in task.worth)
    for worth in task.worth:
        assert sum(tried.count for tried in worth.tried) <= len(task.measured)
        assert worth.chosen in [tried.label for tried in worth.tried]
    space = generate(WORK.func, task.task.target, FIXED)
    assert worth_of(space, task.measured[:4]) == ()


def test_a_layout_shows_its_padding() -> None:
    """17 columns in vectors of 16: the second panel has 15 cells of padding a row, of the kind that its value says."""
    picture = layouts._drawn("w", "x", Layout.parse((3, 17), "lambda i, j: [j // 16, i, j % 16]", "0", (2, 3, 16)))
    assert picture is not None and picture.padding == pytest.approx(1 - 51 / 96)
    assert picture.svg.count('<rect class="number"') == 3 * 15
    assert picture.svg.count('<rect class="data"') == 3 * 17
    huge = layouts._drawn("w", "x", Layout.ordered((1000, 999), block=(0, 8), pad_value="undef"))
    assert huge is not None and len(huge.svg) < 20_000
    assert layouts._drawn("w", "x", Layout.parse((8,), "lambda i: [i // 2]", "", (4,))) is None


def facts(**changed: Any) -> dict[str, Any]:
    loop = {"fmas": 96, "vector_fmas": 96, "spills": 0, "reloads": 0, "fma_share": 1.0, "bound": "fma",
            "accumulators": 12, "loads": 24, "broadcasts": 32, "instructions": 150}  # fmt: skip
    memory = {"parameters": 1000, "workspaces": 0}
    return {"inner_loop": loop | changed.pop("loop", {}), "memory": memory, "parallel": [("i", 40, None)], **changed}


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ({"loop": {"spills": 30, "reloads": 30}}, "registers overflow"),
        ({"loop": {"bound": "loads", "fma_share": 0.4}}, "inner loop bound by loads from the cache"),
        ({"loop": {"vector_fmas": 0}}, "not in vectors"),
        ({"parallel": [("i", 3, None)]}, "threads wait"),
        ({"computed_flops": 3 * WORK.flops}, "computes on padding"),
    ],
)
def test_what_limits_a_kernel_comes_first(task: TaskReport, changed: dict[str, Any], first: str) -> None:
    """Each cause with its evidence and something to do; few candidates are always mentioned."""
    assert task.diagnosis is not None
    slow = replace(task, diagnosis=replace(task.diagnosis, facts=facts(**changed)))
    rest = ("too short", "waits for caches", "waits for memory")  # what is left when all else is explained
    found = [item for item in findings(slow, "stridesmith --workload x") if item.short not in rest]
    assert found[0].short == first and found[0].evidence and found[0].action
    assert found[-1].short == "searched briefly" and "stridesmith --workload x --trials 256" in found[-1].action


def test_threads_that_wait_are_told_where_that_is_known(task: TaskReport) -> None:
    """Three iterations on two threads leave one idle for half of its time; a loop of one thread wastes the other."""
    assert task.diagnosis is not None and task.record.device.threads == 2
    parallel = [("i", 3, None), ("j", 4, 8), ("k", None, None), ("l", 4, 1)]
    found = replace(task.diagnosis, facts=facts(parallel=parallel)).imbalance
    assert found == {"i": 0.25, "j": 0.0, "l": 0.5}


def test_names_in_decisions_are_explained(task: TaskReport, html: str) -> None:
    """``s0`` is an axis of the program and ``i1`` a buffer."""
    names = dict(task.names)
    assert names["s0"] == "vi, 12" and names["s1"] == "vj, 20" and names["i1"] == "a"
    assert "<code>i1</code> is <code>a</code>" in json.loads(unpacked(html, "data"))["bodies"][f"t{task.record.id}"]


def test_a_script_has_the_path_that_was_given(tmp_path: Path, db: Path) -> None:
    """Where a file was named, commands name it; else it is said that it is not known."""
    path, page = tmp_path / "mine.py", tmp_path / "page.html"
    path.write_text(WORK.script, encoding="utf-8")
    with Database(db, read_only=True) as given, Database(tmp_path / "own.db") as own:
        own.put_records([r.changed(workload="", params={}) for r in given.every()])
    for words, has in ((["--script", str(path)], True), ([], False)):
        page.unlink(missing_ok=True)
        assert main(["report", *words, "--threads", "2", "--db", str(tmp_path / "own.db"), "-o", str(page),
                     "--format", "json"]) == 0  # fmt: skip
        body = "".join(json.loads(unpacked(page.read_text(encoding="utf-8"), "data"))["bodies"].values())
        assert (f"--script {path}" in body) is has and ("FILE.py is the file of the program" in body) is not has


def test_what_is_fused_is_not_to_be_fused(task: TaskReport) -> None:
    """What an operator of a model could be fused with, it is: nothing more is said of it."""
    assert task.diagnosis is not None
    small = facts(memory={"parameters": 0, "workspaces": 0})
    slow = replace(task, diagnosis=replace(task.diagnosis, facts=small))
    told = {is_part: " ".join(item.action for item in _waiting(slow, [], is_part)).lower() for is_part in (False, True)}
    assert "what it could be fused with, it is" in told[True]
    assert "fuse" in told[False] and "it is" not in told[False]


@pytest.mark.parametrize("shape", [(2, 3), (40,), (2, 2, 2, 2, 3)])
def test_titles_of_narrow_pictures_are_not_cut(shape: tuple[int, ...]) -> None:
    """A picture is at least as wide as what stands above its cells."""
    axes = [f"a_long_name_{number}" for number in range(len(shape))]
    turned = f"lambda {', '.join(axes)}: [{', '.join(reversed(axes))}]"
    picture = layouts._drawn("w", "x", Layout.parse(shape, turned, "", shape[::-1]))
    assert picture is not None
    width = float(re.findall(r'<svg[^>]* width="([0-9.]+)"', picture.svg)[0])
    titles = re.findall(r'class="head"[^>]*>([^<]*)<', picture.svg)
    assert titles and all(4 + 6.6 * len(title) <= width for title in titles), (width, titles)


def test_the_page_does_not_say_where_the_user_lives(task: TaskReport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in the user's folder begin with a tilde."""
    monkeypatch.setenv("HOME", "/home/someone")
    html = pages.page(pages.Subject("x", "/home/someone/data/own.db", [], {}, False), [task])
    assert "from ~/data/own.db." in html and "/home/someone" not in html


def test_a_kernel_at_the_roof_is_left_alone(task: TaskReport) -> None:
    """There is nothing to be done, and the page says so."""
    us = task.task.work.flops / 95e3
    fast = replace(task, record=task.record.measured([us * 1e-6] * 3, 0.0, "race"))
    fast = replace(fast, runs=(RunFacts(name="r1", peak_gflops=100.0, bandwidth=1e12),))
    (only,) = findings(fast, "tune")
    assert "limit" in only.short and only.action.startswith("Nothing")


def test_peers_are_read_from_a_benchmark(db: Path, task: TaskReport, tmp_path: Path) -> None:
    """By the record's id; a file of another form is refused."""
    times = {"torch:mm": [3.5, 1.0], "stridesmith:kernel": [1]}
    row = {"name": "x", "tune": {"record": task.record.id}, "times": times}
    (tmp_path / "peers.jsonl").write_text(json.dumps(row) + "\n")
    page = tmp_path / "report.html"
    options = ["report", "--db", str(db), "-o", str(page), "--peers"]
    assert main([*options, str(tmp_path / "peers.jsonl")]) == 0
    assert "torch:mm" in unpacked(page.read_text(encoding="utf-8"), "data")
    (tmp_path / "other.jsonl").write_text("[1, 2]\n")
    assert main([*options, str(tmp_path / "other.jsonl")]) == 2


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--workload", "matmul", "--shape", "m=13"], 3, "stridesmith --workload matmul --shape m=13"),
        (["--record", "ffff"], 3, "no record 'ffff'"),
        (["--model", "none.onnx"], 74, "none.onnx"),
    ],
)
def test_what_is_refused(
    options: list[str], code: int, said: str, db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One paragraph each, the code of its kind, and no file."""
    page = tmp_path / "report.html"
    assert main(["report", *options, "--threads", "2", "--db", str(db), "-o", str(page)]) == code
    assert said in capsys.readouterr().err and not page.exists()


def test_a_failed_record_has_no_page(db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, with what became of it."""
    with Database(db, read_only=True) as database:
        failed = next(record for record in database.every() if not record.ok)
    page = tmp_path / "report.html"
    assert main(["report", "--record", failed.id, "--db", str(db), "-o", str(page)]) == 2
    assert f"record {failed.id} has no kernel to report: wrong" in capsys.readouterr().err and not page.exists()


def test_a_page_that_cannot_be_written(db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 74 before anything is built."""
    assert main(["report", "--db", str(db), "-o", str(tmp_path / "nowhere" / "r.html")]) == 74
    assert "is not there" in capsys.readouterr().err


def test_the_median_of_the_made_up_records_holds(db: Path) -> None:
    """The fixture's winner is the raced one, so that the pages above are about it."""
    with Database(db, read_only=True) as database:
        (winner,) = database.winners()
    assert winner.stage == "race" and statistics.median(winner.samples) * 1e6 == pytest.approx(winner.latency_us)


def test_a_model_has_its_operators_by_time(tmp_path: Path) -> None:
    """Each with its share and its kernel, the slowest named first with what to do; names are text."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"], name="<b>first</b>"), helper.make_node("Softmax", ["a"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((24, 8), np.float32), "w")],
    )  # fmt: skip
    path, page = tmp_path / "net.onnx", tmp_path / "report.html"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    assert main(["report", "--model", str(path), "--db", str(tmp_path / "none.db"), "-o", str(page)]) == 0
    html = page.read_text(encoding="utf-8")
    assert "Its slowest operator is" in html and "estimated" in html
    assert f"stridesmith --model {path}" in html and "--seconds 600" in html
    assert "<b>first</b>" not in html and "&lt;b&gt;first" in html


def test_a_task_of_ranges_has_a_table_of_sizes(tmp_path: Path) -> None:
    """How fast the kernel is at each, how near to the roof, and by which schedule; the whole is the geometric mean."""
    work = workload("matmul", m=(1, 32), n=20, k=8)
    unrolled = [["split", {"loop": "i", "factors": [None, 2]}], ["unroll", {"loop": "i_1"}]]
    trace = [["specialize", {"cases": [[{"m": [1, 1]}, []], [{}, unrolled]]}]]
    target = discover("cpu", 1)
    facts = {"script": work.script, "params": dict(work.params), "interface": FIXED, "target": target.to_json()}
    db, path = tmp_path / "ranges.db", tmp_path / "report.html"
    with Database(db) as database:
        database.put_record(make_record(5.0, trace=trace, sketch="ranges", choice=[], stage="race", **facts))
    assert main(["report", "--db", str(db), "-o", str(path), "--format", "json"]) == 0
    (body,) = json.loads(unpacked(path.read_text(encoding="utf-8"), "data"))["bodies"].values()
    table = body[body.index("At each size") :]
    assert "<code>m=4</code>" in table and "Schedule 1 runs for m=1; Schedule 2 runs for all others." in table
    assert "in the geometric mean" in body and "specialize" in body
