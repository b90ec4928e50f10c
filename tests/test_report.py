"""The report of a real run, as a file and in a real Chromium: what it says, what it loads, and what can be done on it.

Chromium is the system's own. Where there is none the tests of the browser are skipped, unless TRIAGESIM_CHROMIUM says
that it must be there.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from triagesim.jsonl import read_lines, write_jsonl
from triagesim.resources import load_yaml

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CASES = 8
CONFIG = """
data: { source: cases.jsonl, provenance: synthetic }
models:
  agenda: { backend: agenda }
pairings:
  - { nurse: agenda, patient: agenda }
  - { name: judged, nurse: agenda, patient: agenda, judge: agenda }
shards: 1
audio: { engine: espeak, pairings: [judged], max_dialogues: 1 }
score: { bootstrap: 100 }
"""
CANARY = "<img src=x onerror='window.canary=1'></script><script>window.canary=1</script>"


def execute(*command: str, folder: Path) -> str:
    """Run a command of ours; what it printed."""
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def make_report(results: Path, *, without: tuple[str, ...] = (), data: str = "report") -> Path:
    """The page of a run's stored files by the script of the rule, without some of its tables."""
    tables = [path for path in sorted((results / "metrics").iterdir()) if path.name not in without]
    listed = {
        "--tables": tables,
        "--pairings": sorted((results / "pairings").iterdir()),
        "--episodes": sorted((results / "episodes").rglob("*.jsonl")),
        "--audio": sorted((results / "audio").glob("manifest-*.jsonl")),
        "--weights": [results / f"personas/{role}.weights.csv" for role in ("patient", "nurse")],
        "--flow": [results / "cases/flow.json"],
        "--selected": [results / "cases/cases.csv"],
        "--pool": [results / "pool.jsonl"],
        "--out": [results / "report.html"],
        "--data": [results / data],
    }
    options = [part for name, paths in listed.items() for part in (name, *map(str, paths))]
    execute(sys.executable, str(ROOT / "workflow/scripts/report.py"), *options, folder=results)
    return results / "report.html"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run with two pairings, one with a dialogue master; printed.txt is what it said."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "config").mkdir()
    (folder / "config/config.yaml").write_text(CONFIG, encoding="utf-8")
    lines = (ROOT / "resources/cases/vignettes.jsonl").read_text(encoding="utf-8").splitlines()[:CASES]
    (folder / "cases.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    printed = execute("snakemake", "--cores", "2", "--directory", str(folder), folder=ROOT)
    (folder / "printed.txt").write_text(printed, encoding="utf-8")
    return folder


@pytest.fixture
def results(run: Path, tmp_path: Path) -> Path:
    """A copy of the run's results, to change."""
    return Path(shutil.copytree(run / "results", tmp_path / "results"))


def episodes(results: Path) -> list[dict[str, Any]]:
    return [one for path in sorted((results / "episodes").rglob("*.jsonl")) for _, one in read_lines(path)]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# The files


def test_the_run_ends_with_its_counts_what_to_know_and_the_page_to_open_first(run: Path) -> None:
    printed = (run / "printed.txt").read_text(encoding="utf-8")
    [row] = [row for row in rows(run / "results/metrics/summary.csv") if row["pairing"] == "judged"]
    confusion = [row for row in rows(run / "results/metrics/confusion.csv") if row["pairing"] == "judged"]
    right = sum(int(row["n"]) for row in confusion if row["truth"] == row["final"])
    assert re.search(rf"^judged +{CASES} +0 +0 +{right} of {row['graded']} ", printed, re.MULTILINE)
    assert "note: agenda, judged: few graded cases (8, 8)" in printed
    opened = re.findall(r"^open: (.*)", printed, re.MULTILINE)
    assert opened[0] == str(run / "results/report.html")
    assert all(Path(path).is_file() for path in opened)


def test_a_figure_has_its_drawing_and_its_data_beside_the_page_and_its_table_on_it(run: Path) -> None:
    page = (run / "results/report.html").read_text(encoding="utf-8")
    names = re.findall(r"report/(\w+)\.svg</a></p>", page)
    assert {"levels", "agreement", "confusion", "by_level", "comparisons", "economy", "calibration"} <= set(names)
    assert page.count("The numbers of this figure") == len(names)
    for name in names:
        drawing = (run / f"results/report/{name}.svg").read_text(encoding="utf-8")
        assert drawing.startswith("<svg ")
        assert "var(--" not in drawing
        assert rows(run / f"results/report/{name}.csv")
    counted = {
        (row["pairing"], row["truth"], row["final"], row["n"]) for row in rows(run / "results/report/confusion.csv")
    }
    assert counted == {tuple(row.values()) for row in rows(run / "results/metrics/confusion.csv")}


def test_only_what_the_run_did_not_make_is_left_out(run: Path) -> None:
    page = (run / "results/report.html").read_text(encoding="utf-8").replace("&#39;", "'")
    assert re.findall(r"Left out, as this run doesn't have it: ([^<]*)\.</p>", page) == [
        "What a recogniser heard (asr.csv)"
    ]


def test_the_same_files_give_the_same_page(run: Path, results: Path) -> None:
    made = make_report(results)
    before, after = (
        {path.name: path.read_bytes() for path in (folder / "report").glob("[a-z]*")}
        for folder in (run / "results", results)
    )
    assert [name for name in before | after if before.get(name) != after.get(name)] == []
    assert made.read_bytes() == (run / "results/report.html").read_bytes()


def test_a_section_whose_table_is_not_there_is_left_out_with_a_sentence(results: Path) -> None:
    kept = ("summary.csv", "usage.json")
    without = tuple(path.name for path in (results / "metrics").iterdir() if path.name not in kept)
    page = make_report(results, without=without).read_text(encoding="utf-8")
    missing = re.findall(r"Left out, as this run doesn't have it: ([^<]*)\.</p>", page.replace("&#39;", "'"))
    assert "agreement.csv" in missing[1]
    assert "Confusion of levels" not in page
    assert not (results / "report/confusion.csv").exists()


def test_the_folder_of_the_tables_is_not_written_into(results: Path) -> None:
    before = sorted((path.name, path.read_bytes()) for path in (results / "metrics").iterdir())
    with pytest.raises(AssertionError, match="name a folder of its own"):
        make_report(results, data="metrics")
    assert sorted((path.name, path.read_bytes()) for path in (results / "metrics").iterdir()) == before


def test_restricted_data_is_named_before_everything_else(results: Path) -> None:
    flow = json.loads((results / "cases/flow.json").read_text(encoding="utf-8"))
    flow["provenance"] = {"mimic_iv_ed": flow["accepted"]}
    flow["accepted"] += 1
    (results / "cases/flow.json").write_text(json.dumps(flow), encoding="utf-8")
    page = make_report(results).read_text(encoding="utf-8")
    assert page.index("Restricted data") < page.index("Before you read a figure") < page.index("<nav")
    assert "reconcile" in page
    assert "noisy" in page or "often one off" in page


def test_snakemake_s_own_report_holds_the_marked_outputs(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "snakemake.html"
    printed = execute("snakemake", "--directory", str(run), "--report", str(out), folder=ROOT)
    assert {"summary.csv", "coverage.csv", "rejects.csv", "report.html"} <= set(re.findall(r"Adding (\S+) ", printed))
    assert out.stat().st_size > 100_000


# The page in Chromium


def test_the_weights_of_both_persona_pools_are_on_the_page_with_their_sources(run: Path) -> None:
    shown = rows(run / "results/report/persona_weights.csv")
    pools = [
        {"role": role} | row
        for role in ("patient", "nurse")
        for row in rows(run / f"results/personas/{role}.weights.csv")
    ]
    assert shown == pools
    page = (run / "results/report.html").read_text(encoding="utf-8")
    assert all(f"<td>{row['source']}</td>" in page for row in pools)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        if os.environ.get("TRIAGESIM_CHROMIUM"):
            pytest.fail("TRIAGESIM_CHROMIUM is set, but there is no chromium on the path")
        pytest.skip("no Chromium on the path; on Debian: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page with all that it logged, threw and asked for."""

    def __init__(self, browser: Browser, path: Path, fragment: str = "", **context: Any) -> None:
        self.page: Page = browser.new_context(**context).new_page()
        self.logged: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.logged.append(message.text))
        self.page.on("pageerror", lambda error: self.logged.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri() + fragment)
        self.page.wait_for_selector("#list button")

    def until(self, holds: str) -> None:
        """Wait till an expression holds. (Playwright's own way needs `eval`, which the page's policy forbids.)"""
        looked = (
            f"const look = () => ({holds}) ? done() : performance.now() > end ? fail() : requestAnimationFrame(look)"
        )
        script = f"const end = performance.now() + 20000; {looked}; look();"
        self.page.evaluate(f"new Promise((done, fail) => {{ {script} }})")

    def choose(self, select: str, label: str) -> None:
        self.page.select_option(f"#{select}", label=label)

    def found(self) -> int:
        return int(self.page.inner_text("#found").split()[0])

    def open_first(self) -> None:
        self.page.click("#list button >> nth=0")
        self.page.wait_for_selector("#dialogue .lines")


def test_the_page_loads_itself_alone_and_logs_nothing(run: Path, chromium: Browser) -> None:
    path = run / "results/report.html"
    for theme in ("light", "dark"):
        opened = Opened(chromium, path, color_scheme=theme)
        opened.open_first()
        assert opened.logged == []
        assert opened.requests == [path.as_uri()]
        assert opened.found() == 2 * CASES


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "light"), (390, "dark")])
def test_nothing_is_wider_than_the_screen(run: Path, chromium: Browser, width: int, scheme: str) -> None:
    opened = Opened(
        chromium, run / "results/report.html", viewport={"width": width, "height": 844}, color_scheme=scheme
    )
    opened.open_first()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_theme_is_the_system_s_until_another_is_chosen(run: Path, chromium: Browser) -> None:
    opened = Opened(chromium, run / "results/report.html", color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    shades = [opened.page.evaluate(paper)]
    for _ in range(3):
        opened.page.click("#theme")
        shades.append(opened.page.evaluate(paper))
    light, dark = (load_yaml("report/palette.yaml")[theme]["paper"] for theme in ("light", "dark"))
    expected = [
        f"rgb({', '.join(str(int(shade[at : at + 2], 16)) for at in (1, 3, 5))})" for shade in (dark, light, dark, dark)
    ]
    assert shades == expected


def test_filters_and_search_find_what_the_episodes_hold(run: Path, chromium: Browser) -> None:
    opened = Opened(chromium, run / "results/report.html")
    everything = episodes(run / "results")
    opened.choose("pairing", "judged")
    assert opened.found() == CASES
    opened.choose("outcome", "right")
    right = [one for one in everything if one["pairing"] == "judged" and one["final_triage"] == one["case"]["acuity"]]
    assert opened.found() == len(right)
    opened.choose("mark", "in the pool")
    assert opened.found() == len(right)
    opened.page.click("#filters button[type=reset]")
    opened.until(f"document.getElementById('found').textContent.startsWith('{2 * CASES} of')")
    level = everything[0]["patient_persona"]["verbosity"]
    opened.choose("trait", f"patient verbosity: {level}")
    assert opened.found() == sum(one["patient_persona"]["verbosity"] == level for one in everything)
    opened.choose("trait", "any")
    said = everything[0]["history"][1]["utterance"]
    opened.page.fill("#query", said.upper())
    matching = sum(
        any(said.lower() in line.get("utterance", "").lower() for line in one["history"]) for one in everything
    )
    opened.until(f"document.getElementById('found').textContent.startsWith('{matching} of')")


def test_a_dialogue_shows_lines_levels_reasoning_and_the_record_as_it_grows(run: Path, chromium: Browser) -> None:
    [episode, *_] = [one for one in episodes(run / "results") if one["pairing"] == "judged"]
    name = f"judged/{episode['episode_id']}"
    opened = Opened(chromium, run / "results/report.html", f"#dialogue={name.replace('/', '%2F')}")
    opened.page.wait_for_selector("#dialogue .lines")
    shown = opened.page.inner_text("#dialogue")
    assert all(line["text"] in shown for line in episode["transcript"])
    assert all(step["explanation"] in shown for step in episode["trace"])
    replies = [line for line in episode["history"] if line.get("information")]
    assert all(reply["information"][part] in shown for reply in replies for part in ("disclosed", "conveyed"))
    record = "document.querySelector('.side').textContent"
    final = episode["record"]["chief_complaint"]
    assert final in opened.page.evaluate(record)
    opened.page.focus("input[type=range]")
    opened.page.keyboard.press("Home")
    assert final not in opened.page.evaluate("document.querySelectorAll('.side > div')[0].textContent")
    assert opened.page.locator(".lines > li.at").inner_text().startswith("Nurse")


def test_a_rejected_draft_stands_with_the_reason(results: Path, chromium: Browser) -> None:
    path = next((results / "episodes/judged").iterdir())
    kept = [one for _, one in read_lines(path)]
    line = next(line for line in kept[0]["history"] if line["actor"] == "patient")
    verdict = {"critique": "It names the illness.", "faithful": False, "informative": True}
    line["verification"] = {
        "passed": True,
        "verdict": {},
        "rejected": [{"utterance": "It's my heart.", "verdict": verdict}],
    }
    write_jsonl(path, kept)
    opened = Opened(chromium, make_report(results))
    opened.choose("mark", "drafts rejected")
    opened.page.click(f"#list button:has-text('{kept[0]['episode_id']}')")
    opened.page.wait_for_selector("#dialogue .master")
    texts = opened.page.locator("#dialogue .master").all_inner_texts()
    assert any("It's my heart." in text and "It names the illness. (not faithful)" in text for text in texts)


def test_everything_can_be_reached_and_done_by_keyboard(run: Path, chromium: Browser) -> None:
    opened = Opened(chromium, run / "results/report.html")
    press = opened.page.keyboard.press
    press("Tab")
    assert opened.page.evaluate("document.activeElement.textContent") == "To the content"
    opened.page.focus("#query")
    press("Tab")
    assert opened.page.evaluate("document.activeElement.id") == "pairing"
    opened.page.focus("#list button")
    press("Enter")
    opened.page.wait_for_selector("#dialogue .lines")
    assert opened.page.evaluate("document.activeElement.id") == "dialogue"
    first = opened.page.inner_text("#dialogue h3 + p")
    for _ in range(20):
        press("Tab")
        if opened.page.evaluate("document.activeElement.textContent") == "Next dialogue":
            break
    press("Enter")
    opened.until(f"document.querySelector('#dialogue h3 + p').textContent !== {json.dumps(first)}")
    unnamed = """[...document.querySelectorAll('button, input, select, audio, [role=region], [role=img]')].filter(
        (one) => !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.[0]?.textContent.trim()))"""
    assert opened.page.evaluate(f"{unnamed}.length") == 0


def test_the_speech_plays_from_a_line_and_marks_where_it_is(run: Path, chromium: Browser) -> None:
    opened = Opened(chromium, run / "results/report.html")
    opened.choose("mark", "spoken")
    assert opened.found() == 1
    opened.open_first()
    [manifest] = [row for path in (run / "results/audio").glob("manifest-*.jsonl") for _, row in read_lines(path)]
    line = manifest["lines"][2]
    button = opened.page.locator(f".lines button[aria-label='Play from {line['start']:.1f} seconds']")
    button.click()
    opened.until(f"document.querySelector('audio').currentTime > {line['start'] + 0.2}")
    assert line["text"] in opened.page.inner_text(".lines > li.at")
    opened.page.evaluate(f"document.querySelector('audio').currentTime = {manifest['lines'][3]['start'] + 0.05}")
    opened.until(
        f"document.querySelector('.lines > li.at').textContent.includes({json.dumps(manifest['lines'][3]['text'])})"
    )
    spoken = [url for url in opened.requests if not url.endswith("report.html")]
    assert {url.split("/results/")[1] for url in spoken} == {f"audio/{manifest['file']}"}
    assert opened.logged == []


def test_html_and_script_in_a_case_or_a_line_stay_text(results: Path, chromium: Browser) -> None:
    for path in (results / "episodes").rglob("*.jsonl"):
        changed = [one for _, one in read_lines(path)]
        for episode in changed:
            episode["case"]["chief_complaint"] = CANARY
            episode["patient_persona"]["verbosity"] = CANARY
            for item in [*episode["history"], *episode["trace"]]:
                for key in ("utterance", "explanation", "understood"):
                    if key in item:
                        item[key] = CANARY
        write_jsonl(path, changed)
    summary = results / "metrics/status.csv"
    summary.write_text(f'pairing,status,reason,n\nagenda,skipped,"{CANARY}",1\n', encoding="utf-8")
    path = make_report(results)
    opened = Opened(chromium, path)
    opened.open_first()
    assert CANARY in opened.page.inner_text("#dialogue h3")
    assert CANARY in opened.page.inner_text("#dialogue .lines")
    assert CANARY in opened.page.inner_text("#flow")
    assert opened.page.evaluate("window.canary") is None
    assert opened.page.evaluate("document.querySelectorAll('#main img').length") == 0
    assert opened.requests == [path.as_uri()]
    assert opened.logged == []


def test_many_dialogues_lie_in_files_beside_the_page_and_are_read_when_they_are_wanted(
    results: Path, chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triagesim.report import page

    monkeypatch.setattr(page, "HELD", 0)
    found = {
        name: sorted((results / name).rglob(pattern))
        for name, pattern in {"metrics": "*", "pairings": "*.json", "episodes": "*.jsonl"}.items()
    }
    sources = page.Sources(
        found["metrics"],
        results / "cases/flow.json",
        results / "cases/cases.csv",
        found["pairings"],
        found["episodes"],
        results / "pool.jsonl",
        [],
    )
    page.write_report(sources, results / "report.html", results / "report")
    opened = Opened(chromium, results / "report.html")
    assert opened.requests == [(results / "report.html").as_uri()]
    opened.open_first()
    assert opened.requests[1:] == [(results / "report/dialogues-0.js").as_uri()]
    opened.page.fill("#query", "esi")
    opened.until("!document.getElementById('found').textContent.startsWith('Reading')")
    assert opened.logged == []
    (results / "report/dialogues-0.js").unlink()
    alone = Opened(chromium, results / "report.html")
    alone.page.click("#list button >> nth=0")
    alone.until("document.getElementById('dialogue').textContent.includes(\"isn't beside the page\")")
