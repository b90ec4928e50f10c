"""A server that sends the key of each request back wherever it can: in answers, errors, names and headers."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

import fault_server
from fault_server import FAULTS, Asked, FaultServer, Reply, completion, valid_text
from triagesim.backends.hosted import OpenAICompatible
from triagesim.errors import InputError
from triagesim.governance import hide
from triagesim.resources import RESOURCES

KEYS = {
    "plain": "zq4Canary0Key9x7",
    "odd": r"""k"x%2F$a=b#c\d&<e>/f+g'hij-0123456789""",
    "sk": "sk-or-v1-" + "0f" * 32,
    "long": "x%/" * 400,
}


def spellings(key: str) -> list[str]:
    """A key as servers write it."""
    in_json = json.dumps(key)[1:-1]
    in_url = [quote(key, safe=""), quote(key), quote_plus(key)]
    in_url.append(re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), in_url[0]))
    coded = [b64encode(f"{before}{key}".encode()).decode() for before in ("", "Bearer ", "u:", "xyz")]
    return [key, in_json, json.dumps(in_json)[1:-1], html.escape(key), *in_url, *coded, escaped(key)]


def escaped(key: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in key)


def echo(call: Asked) -> Reply:
    """Mostly a valid answer with the key in it, now and then an error that names it."""
    key, turn = call.authorization.partition(" ")[2], call.number % 12
    spelled = spellings(key)
    answer = json.loads(valid_text(call.body))
    for name, value in answer.items():
        if isinstance(value, str) and " " in value:
            answer[name] = f"{value} {spelled[call.number % len(spelled)]}"
    raw = json.dumps({"k": key, "forms": spelled})
    said = {"message": f"no {key} ({call.authorization})", "code": 500, "metadata": {"raw": raw, "provider_name": key}}
    errors = {
        1: fault_server._json({"error": said}, 500, X_Echo=quote(key)),
        3: fault_server._json({"error": {"message": {key: spelled}, "code": 429}}, 429, Retry_After="0"),
        5: fault_server._json({"id": key, "choices": None, "error": {"message": spelled, "code": 503}}),
        7: Reply(502, f"{key} {call.authorization} {spelled}".encode(), {"Content-Type": "text/plain"}),
        9: completion(call, f"Sure, {key}: {json.dumps(answer)}"),
    }
    if turn in errors:
        return errors[turn]
    text = json.dumps(answer)
    if turn == 2:
        text = text.replace(json.dumps(key)[1:-1], escaped(key))
    body = json.loads(completion(call, text).body)
    return fault_server._json({**body, "model": f"m {key}", "id": key, "system_fingerprint": key})


def in_dotenv(key: str) -> str:
    """The line for a key, quoted as for a shell."""
    return f"OPENAI_API_KEY={shlex.quote(key)}" if "'" not in key else f'OPENAI_API_KEY="{_slashed(key)}"'


def _slashed(key: str) -> str:
    return "".join(f"\\{character}" if character in '\\"$`' else character for character in key)


@pytest.mark.parametrize("name", KEYS)
def test_a_key_in_use_goes_in_every_spelling(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triagesim.governance._secrets", {KEYS[name]})
    for spelling in spellings(KEYS[name]):
        assert hide(f"before {spelling} after").startswith("before ")
        assert len(hide(spelling)) < 24
    assert hide("a text without any") == "a text without any"


@pytest.mark.parametrize("name", ["plain", "odd"])
def test_a_key_of_the_run_is_found_nowhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = KEYS[name]
    monkeypatch.setitem(FAULTS, "echo", echo)
    (tmp_path / ".env").write_text(f"OTHER=1\n{in_dotenv(key)}\n", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_KEY")}
    with FaultServer("echo") as server:
        options = {"base_url": server.url, "local": True}
        command = ["--model", "openai:m", "--judge-model", "openai:m", "--model-args", json.dumps(options), "--limit=1"]
        command += ["--cases", str(RESOURCES / "cases/examples.jsonl"), "--max-turns=4", "--out", "run.jsonl"]
        for words in (command, ["status", "run.jsonl.journal"]):
            done = subprocess.run(
                [sys.executable, "-m", "triagesim.cli", *words],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                check=False,
            )
            (tmp_path / f"said-{words[0].strip('-')}").write_bytes(done.stdout + done.stderr)
        assert {call.authorization for call in server.asked} == {f"Bearer {key}"}
        assert len(server.asked) > 12
    (tmp_path / ".env").unlink()
    kept = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*") if path.is_file()}
    assert "[key]" in "".join(kept.values())
    for path, text in kept.items():
        for spelling in (*spellings(key)[:8], b64encode(key.encode()).decode()[:-4], key[: len(key) * 2 // 3]):
            assert spelling not in text, path


@pytest.mark.parametrize("key", ["none", "EMPTY", "-", "x", "numb"])
def test_a_word_that_stands_for_no_key_is_left_in_answers(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    import asyncio

    from test_hosted import ask

    async def answered(url: str) -> str:
        backend = OpenAICompatible("m", base_url=url, api_key=key)
        await backend.start()
        text = (await backend.complete(ask())).text
        await backend.close()
        return text

    with FaultServer() as server:
        assert asyncio.run(answered(server.url)) == valid_text(server.asked[0].body)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (r'"a\"b\\c\$d"', r'a"b\c$d'),
        (r"'a\"b$c'", r"a\"b$c"),
        (r'"a\b"  # mine', r"a\b"),
        ("a=b#c%d=", "a=b#c%d="),
        ("a'b\"c", "a'b\"c"),
        ('"a#b" #c"', "a#b"),
    ],
)
def test_a_key_in_dotenv_is_read_as_a_shell_reads_it(
    line: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    Path(".env").write_text(f"OPENAI_API_KEY={line}\n", encoding="utf-8")
    assert _key() == key


@pytest.mark.parametrize("line", ['"abcdefgh', "'abcdefgh", '"abc"def"', "'abc' def"])
def test_a_key_with_half_a_quotation_is_told_without_repeating_it(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    Path(".env").write_text(f"OPENAI_API_KEY={line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"\.env: a quotation mark around OPENAI_API_KEY isn't closed") as caught:
        _key()
    assert "abc" not in str(caught.value)


def _key() -> str:
    import asyncio

    backend = OpenAICompatible("m", base_url="http://127.0.0.1:9/v1")
    asyncio.run(backend.start())
    asyncio.run(backend.close())
    return backend._key
