"""A review form of dialogues in which every free text is HTML and script."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from actors import personas
from triagesim import load_backend, load_cases, simulate
from triagesim.jsonl import write_jsonl
from triagesim.resources import RESOURCES
from triagesim.review.kit import write_kit

CANARY = "<img src=x onerror='window.canary=1'></script><script>window.canary=1</script>\"'`-->{{ 7 * 7 }}"
#: Keys whose texts are names out of a fixed list, or what a dialogue is found by.
NAMES = {"episode_id", "case_id", "status", "algorithm", "acuity_scale", "speaker", "actor", "name", "vital", "infers"}
NAMES |= {"event", "action", "spec", "pairing", "provenance"}


def hostile(value: Any, key: str = "") -> Any:
    """A value with the canary in place of its free texts."""
    if isinstance(value, dict):
        return {name: hostile(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [hostile(part, key) for part in value]
    return CANARY if isinstance(value, str) and key not in NAMES else value


def test_the_form_shows_it_as_text_and_runs_none_of_it(tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        if os.environ.get("TRIAGESIM_CHROMIUM"):
            pytest.fail("TRIAGESIM_CHROMIUM is set, but there is no Chromium on the path")
        pytest.skip("no Chromium on the path; on Debian: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    agenda = load_backend("agenda")
    pools: Any = {"nurse_personas": personas("nurse", 2), "patient_personas": personas("patient", 2)}
    cases = load_cases(RESOURCES / "cases/examples.jsonl")
    episodes = simulate(cases, nurse_llm=agenda, patient_llm=agenda, **pools)
    write_jsonl(tmp_path / "e.jsonl", [hostile(json.loads(json.dumps({**one, "pairing": "p"}))) for one in episodes])
    items = write_kit([tmp_path / "e.jsonl"], tmp_path / "kit", sample=3, repeats=0, seed=0)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        logged: list[str] = []
        page.on("console", lambda message: logged.append(message.text))
        page.on("pageerror", lambda error: logged.append(str(error)))
        page.goto((tmp_path / "kit/form.html").as_uri())
        for _ in items[1:]:
            page.click("#next")
        assert page.evaluate("window.canary") is None
        assert page.evaluate("document.querySelectorAll('img').length") == 0
        assert page.evaluate("document.body.textContent.split('onerror').length") > 20
        assert "{{ 7 * 7 }}" in page.content()
        browser.close()
    assert logged == []
