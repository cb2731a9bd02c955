"""The live view in a browser: what changes is put in, what the reader did stays."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from browser.chromium import Opened
from browser.results import EVIL
from browser.serving import Served, served_from
from glocal.core import locks

pytestmark = pytest.mark.browser

Open = Callable[..., Opened]

LIMIT = 120
"""Seconds for what must happen."""


@contextmanager
def command(*words: object, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A glocal command in a process of its own, which is interrupted at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "glocal", *map(str, words)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What is started in the background of a script ignores it, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def listening(process: subprocess.Popen[str]) -> str:
    """The address that ``glocal ui`` prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.match(r"Listening at (http://\S+/)", line)
    assert found, line
    return found[1]


def held_after(run: subprocess.Popen[str], file: Path, lines: int) -> int:
    """Stop a process once its file has so many lines; how many there are then."""
    until = time.monotonic() + LIMIT
    while not file.is_file() or file.read_bytes().count(b"\n") < lines:
        assert time.monotonic() < until, "waited in vain"
        assert run.poll() is None
        time.sleep(0.005)
    run.send_signal(signal.SIGSTOP)
    return file.read_bytes().count(b"\n")


def expect(locator: Any) -> Any:
    """A locator that is waited for."""
    from playwright.sync_api import expect

    expect.set_options(timeout=1000 * LIMIT)
    return expect(locator)


def test_a_run_is_watched_from_its_first_round_to_its_end(open_page: Open, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    settings = [*("--clients", 6, "--rounds", 30, "--model", "mlp(8)", "--engine", "sequential")]
    quick = [*("--baseline", "local(max_epochs=2)", "--out", "runs/first")]
    with command("ui", "--port", 0, cwd=tmp_path) as ui:
        url = listening(ui)
        page = open_page(url).page
        expect(page.locator("main")).to_contain_text("There are no runs in runs yet")
        with command("run", "ditto", *settings, *quick, cwd=tmp_path) as run:
            row = page.locator("#runs tbody tr", has_text="first")
            done = held_after(run, tmp_path / "runs" / "first" / "metrics.jsonl", 2)
            expect(row).to_contain_text("running")
            expect(row.locator("progress")).to_have_attribute("max", "30")
            row.get_by_role("link").click()
            expect(page.locator("#progress")).to_contain_text(f"round {done} of 30")
            expect(page.locator("#a-learning svg.figure").first).to_be_visible()
            run.send_signal(signal.SIGCONT)
            done = held_after(run, tmp_path / "runs" / "first" / "metrics.jsonl", done + 2)
            expect(page.locator("#progress")).to_contain_text(f"round {done} of 30")
            run.send_signal(signal.SIGCONT)
            expect(page.locator(".answer")).to_contain_text("better off than alone")
            assert run.wait(LIMIT) == 0
        expect(page.locator("#progress")).to_have_count(0)
        assert page.locator("select[data-choose] option").count() == 7
        page.get_by_role("link", name="All runs").click()
        expect(page.locator("#runs tbody tr")).to_contain_text("finished")
    assert ui.returncode == 0


@pytest.fixture
def growing(made: Path, tmp_path: Path) -> Path:
    """Some runs, one of which a test makes grow."""
    root = tmp_path / "runs"
    for name in ("fedavg", "ditto"):
        shutil.copytree(made / "three" / name, root / name)
    shutil.copytree(made / "three" / "fedavg", root / "growing")
    (root / "growing" / "result.json").unlink()
    cut(root / "growing", 1)
    return root


def cut(folder: Path, rounds: int) -> None:
    """The run has done so many rounds."""
    lines = (folder.parent / "fedavg" / "metrics.jsonl").read_text().splitlines()
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines[:rounds]))


def test_what_the_reader_did_stays_when_a_run_grows(open_page: Open, growing: Path) -> None:
    with served_from(growing) as served, locks.hold(growing / "growing"):
        page = open_page(f"{served.url}/", viewport={"width": 900, "height": 400}).page
        rows = page.locator("#runs tbody tr")
        expect(rows.filter(has_text="growing")).to_contain_text("round 1 of 3")
        page.get_by_role("button", name="method").click()
        page.get_by_role("checkbox", name="Choose ditto").check()
        page.get_by_role("searchbox").fill("ing")
        page.locator("#runs").scroll_into_view_if_needed()
        page.evaluate("window.scrollTo(0, 60)")
        page.evaluate("window.kept = document.querySelector('#runs tbody')")
        order = rows.locator("th").all_inner_texts()
        cut(growing / "growing", 2)
        expect(rows.filter(has_text="growing")).to_contain_text("round 2 of 3")
        assert page.evaluate("window.kept.isConnected")
        assert page.evaluate("window.scrollY") == 60
        assert page.evaluate("document.activeElement.id") == "search"
        assert page.get_by_role("searchbox").input_value() == "ing"
        assert rows.locator("th").all_inner_texts() == order
        assert page.locator("th[aria-sort]").inner_text() == "method"
        assert page.locator("#runs tbody tr:visible").count() == 1
        page.get_by_role("searchbox").fill("")
        assert page.get_by_role("checkbox", name="Choose ditto").is_checked()
        assert page.locator("#runs tbody tr:visible").count() == 3


def test_a_chosen_participant_stays_when_a_comparison_grows(open_page: Open, growing: Path) -> None:
    with served_from(growing) as served:
        chosen = "run=fedavg&run=growing"
        page = open_page(f"{served.url}/compare?{chosen}#participant=3").page
        expect(page.locator(".participant:visible h3")).to_have_text("3")
        page.evaluate("window.kept = document.querySelector('.participant.chosen')")
        shutil.copy(growing / "fedavg" / "result.json", growing / "growing" / "result.json")
        expect(page.locator("#figures")).not_to_contain_text("stopped")
        assert page.evaluate("window.kept.classList.contains('chosen')")
        expect(page.locator(".participant:visible h3")).to_have_text(["3", "3"])


def test_the_server_may_stop_and_come_back_and_a_folder_may_go(
    open_page: Open, growing: Path
) -> None:
    opened = open_page()
    said = opened.page.locator("#connection")
    with command("ui", growing, "--port", 0, cwd=growing) as ui:
        url = listening(ui)
        page = opened.goto(f"{url}report/growing")
        expect(page.locator("main")).to_contain_text("Not finished")
        assert said.is_hidden()
    expect(said).to_contain_text("The server does not answer")
    with command("ui", growing, "--port", url.split(":")[-1].rstrip("/"), cwd=growing):
        expect(said).to_be_hidden()
        shutil.rmtree(growing / "growing")
        expect(said).to_contain_text("not there any more")
        expect(page.locator("main")).to_contain_text("Not finished")
    # A browser's own lines about requests that failed; nothing else is complained of.
    assert all("Failed to load resource" in each for each in opened.complaints)
    opened.complaints.clear()


def test_a_run_that_breaks_says_why(open_page: Open, growing: Path) -> None:
    with served_from(growing) as served:
        page = open_page(f"{served.url}/").page
        (growing / "growing" / "result.json").write_text("{")
        expect(page.locator("#runs")).to_contain_text("result.json is not valid JSON")
        page.get_by_role("link", name="growing").click()
        expect(page.locator(".notice")).to_contain_text("result.json is not valid JSON")


def test_chosen_runs_are_compared(open_page: Open, served: Served) -> None:
    page = open_page(f"{served.url}/").page
    for name in ("three/ditto", "many/ditto"):
        page.get_by_role("checkbox", name=f"Choose {name}").check()
    page.get_by_role("button", name="Compare").click()
    assert page.locator("#figures thead th").all_inner_texts()[1:] == [
        "A: many/ditto",
        "B: three/ditto",
    ]
    assert page.locator("svg.figure:visible").count() > 5


def test_malicious_names_are_text_in_the_list_too(
    open_page: Open, tmp_path: Path, made: Path
) -> None:
    for i, name in enumerate(EVIL):
        folder = tmp_path / name.replace("/", "∕")
        shutil.copytree(made / "evil-clients" / "fedavg", folder)
        settings = folder / "settings.toml"
        settings.write_text(settings.read_text().replace('"fedavg"', json.dumps(EVIL[-i]), 1))
    with served_from(tmp_path) as served:
        opened = open_page(f"{served.url}/")
        page = opened.page
        assert page.locator("#runs tbody tr").count() == len(EVIL)
        assert page.locator("img, iframe").count() == 0
        page.get_by_role("link", name="onerror").first.click()
        page.wait_for_load_state()
        assert all(url.startswith(served.url) for url in opened.requests)


def test_another_site_reads_nothing(open_page: Open, served: Served) -> None:
    opened = open_page()
    page = opened.page
    page.route(
        "http://evil.test/", lambda route: route.fulfill(body="<p>", content_type="text/html")
    )
    page.goto("http://evil.test/")
    asking = "([url, how]) => fetch(url, how).then(a => a.type + a.status, () => 'refused')"
    for options in ({}, {"mode": "no-cors"}, {"method": "POST"}):
        got = page.evaluate(asking, [f"{served.url}/live.js", options])
        assert got in ("refused", "opaque0")
    loaded = page.evaluate(
        """url => new Promise(done => {
            const script = document.createElement("script");
            script.onload = () => done("loaded");
            script.onerror = () => done("refused");
            script.src = url;
            document.head.append(script);
        })""",
        f"{served.url}/live.js",
    )
    assert loaded == "refused"
    opened.complaints.clear()  # the browser says what it refused


def test_a_page_that_leads_there_by_another_name_is_refused(
    open_page: Open, served: Served
) -> None:
    port = served.server.access.port
    status = open_page().page.goto(f"http://localhost:{port}/").status
    assert status == 200
    refused = open_page()
    answer = refused.page.request.get(f"{served.url}/", headers={"Host": "evil.org"})
    assert answer.status == 403
    for path in ("/report/..%2f..%2fetc%2fpasswd", "/report/%2fetc%2fpasswd", "/three/result.json"):
        assert refused.page.request.get(f"{served.url}{path}").status == 404
