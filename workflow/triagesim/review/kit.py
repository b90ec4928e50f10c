"""The review kit: a stratified, blinded sample of dialogues as a form and a table, with the key apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined

from triagesim.artifact import is_said
from triagesim.cases import VITAL_NAMES, VITALS, with_unit
from triagesim.dataset.licences import licences
from triagesim.errors import InputError
from triagesim.governance import OPEN
from triagesim.jsonl import digest, read_table, write_table, write_text
from triagesim.resources import RESOURCES
from triagesim.review.questions import asked, columns
from triagesim.stored import read_episodes

KEY = ("item", "repeat_of", "pairing", "episode_id", "case_id", "acuity", "acuity_scale", "algorithm", "final_triage")
#: What the patient's script tells the rater, in order.
_SCRIPT = {
    "story": "story",
    "onset": "onset",
    "duration": "duration",
    "location": "where",
    "quality": "what it is like",
    "severity": "how bad",
    "associated_symptoms": "also has",
    "pertinent_negatives": "does not have",
    "medical_history": "history",
    "medications": "says it takes",
    "allergies": "allergies",
    "social_history": "social",
    "cognitive_state": "state",
    "intoxication": "intoxication",
}


class Item(NamedTuple):
    """A dialogue as it is shown; `repeat_of`: the item that showed the same one before."""

    name: str
    episode: Mapping[str, Any]
    repeat_of: str | None


def write_kit(episodes: Iterable[Path], out_dir: Path, *, sample: int, repeats: int, seed: int) -> list[Item]:
    """Write `form.html`, `form.csv` and `key.csv`; return the items in the order in which they are shown.

    Raises:
        InputError: there is no finished dialogue.
    """
    paths = list(episodes)
    items = draw_items((_small(row) for path in paths for _, row in read_episodes(path)), sample, repeats, seed)
    if not items:
        raise InputError("no finished dialogue to review: simulate some first")
    whole = load_episodes(paths, {name_of(item.episode) for item in items})
    items = [item._replace(episode=whole[name_of(item.episode)]) for item in items]
    key = [[item.name, item.repeat_of, *_identity(item.episode)] for item in items]
    private = any(item.episode["case"].get("provenance") not in OPEN for item in items)
    out_dir.mkdir(parents=True, exist_ok=True)
    write_text(out_dir / "form.html", _form(items, key))
    write_table(out_dir / "form.csv", columns(), (row for item in items for row in _table_rows(item)))
    write_table(out_dir / "key.csv", KEY, key)
    if private:
        for name in ("form.html", "form.csv", "key.csv"):
            (out_dir / name).chmod(0o600)
    return items


def draw_items(episodes: Iterable[Mapping[str, Any]], sample: int, repeats: int, seed: int) -> list[Item]:
    """Draw so many finished dialogues, as evenly over levels and pairings as they go, and some of them a second time.

    Each stratum (level × pairing) gives one in turn, in an order by hash: a larger sample holds the smaller.
    The repeated ones are of the first half and come again in the second.
    """
    strata: defaultdict[tuple[Any, str], list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
    for episode in episodes:
        if episode.get("status") == "ok":
            place = _place(seed, "draw", episode)
            strata[episode["case"].get("acuity"), name_of(episode)[0]].append((place, episode))
    ranked = [
        (rank, place, episode)
        for stratum in strata.values()
        for rank, (place, episode) in enumerate(sorted(stratum, key=lambda drawn: drawn[0]))
    ]
    drawn = [episode for _, _, episode in sorted(ranked, key=lambda entry: entry[:2])[:sample]]
    drawn.sort(key=lambda episode: _place(seed, "show", episode))
    half = len(drawn) // 2
    again = sorted(drawn[:half], key=lambda episode: _place(seed, "repeat", episode))[:repeats]
    second = [(_place(seed, "show", episode), episode, False) for episode in drawn[half:]]
    second += [(_place(seed, "again", episode), episode, True) for episode in again]
    shown = [(episode, False) for episode in drawn[:half]]
    shown += [(episode, repeated) for _, episode, repeated in sorted(second, key=lambda entry: entry[0])]
    # The names hold which kit they are of: a file that was filled in for another one is refused, not misread.
    kit = digest([[_place(seed, "show", episode), repeated] for episode, repeated in shown])[:4]
    width = len(str(len(shown)))
    first: dict[str, str] = {}
    items = []
    for number, (episode, _) in enumerate(shown, 1):
        name, identity = f"D{number:0{width}}-{kit}", _place(seed, "show", episode)
        items.append(Item(name, episode, first.get(identity)))
        first.setdefault(identity, name)
    return items


def _small(episode: Mapping[str, Any]) -> dict[str, Any]:
    """What the draw needs of an episode; thousands of whole ones would fill the memory."""
    acuity = (episode.get("case") or {}).get("acuity")
    return {**{key: episode.get(key) for key in ("status", "pairing", "episode_id")}, "case": {"acuity": acuity}}


def name_of(episode: Mapping[str, Any]) -> tuple[str, str]:
    """What tells an episode of a run: its pairing and its id."""
    return episode.get("pairing") or "", episode["episode_id"]


def load_episodes(paths: Iterable[Path], wanted: set[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The wanted ones of the stored episodes, by `name_of`."""
    return {name_of(row): row for path in paths for _, row in read_episodes(path) if name_of(row) in wanted}


def _place(seed: int, purpose: str, episode: Mapping[str, Any]) -> str:
    return sha256(f"{seed}:{purpose}:{'/'.join(name_of(episode))}".encode()).hexdigest()


def _identity(episode: Mapping[str, Any]) -> list[Any]:
    case = episode["case"]
    scale = case.get("acuity_scale") or episode["algorithm"]
    head = [*name_of(episode), case["case_id"], case.get("acuity"), scale]
    return [*head, episode["algorithm"], episode["final_triage"]]


def spoken(episode: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
    """The lines that were said: place in `history`, speaker, text."""
    for place, entry in enumerate(episode["history"]):
        if is_said(entry):
            yield place, entry["actor"], entry["utterance"]


def _table_rows(item: Item) -> Iterator[list[Any]]:
    """An item's rows in `form.csv`: one for its answers, one for each line; all that is to be filled in is empty."""
    empty = dict.fromkeys(columns())
    yield [*(empty | {"item": item.name, "text": _told(item.episode)}).values()]
    for place, speaker, text in spoken(item.episode):
        cells = {"item": item.name, "line": place, "speaker": speaker, "text": text}
        yield [*(empty | cells).values()]


def _told(episode: Mapping[str, Any]) -> str:
    """The case in one text."""
    return "; ".join(f"{name}: {value}" for name, value in facts(episode)) + f"; scale: {episode['algorithm'].upper()}"


def facts(episode: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a rater is told of the case: no label, no model, no persona, nothing that was coded after the visit."""
    case = episode["case"]
    found: list[tuple[str, Any]] = [
        ("complaint", case.get("chief_complaint")),
        ("age", case.get("age")),
        ("gender", case.get("gender")),
        ("arrival", case.get("arrival_transport")),
        ("pain", case.get("pain")),
        ("medicines", ", ".join(case.get("medications") or ())),
    ]
    for name in VITALS:
        value = (case.get("vitals") or {}).get(name)
        found.append((VITAL_NAMES[name], "can't be measured" if value is None else with_unit(name, value)))
    for field, label in _SCRIPT.items():
        value = (episode.get("patient_script") or {}).get(field)
        text = ", ".join(value) if isinstance(value, list) else value
        if text not in ("alert", "none"):
            found.append((label, text))
    return [(label, str(value)) for label, value in found if value not in (None, "")]


def _form(items: list[Item], key: list[list[Any]]) -> str:
    origins = {str(item.episode["case"].get("provenance")) for item in items} - {"synthetic", "None"}
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True)
    template = environment.from_string((RESOURCES / "review_form.html.j2").read_text(encoding="utf-8"))
    return template.render(
        items=[_shown(item) for item in items],
        asked=asked(),
        columns=columns(),
        notices=[licence.notice for licence in licences(origins)],
        # Names what the browser keeps: another sample begins with an empty form.
        kit=digest(key)[:16],
    )


def _shown(item: Item) -> dict[str, Any]:
    """An item as the template reads it: what was said and measured, in order."""
    said: list[dict[str, Any]] = []
    for place, entry in enumerate(item.episode["history"]):
        if entry.get("event") == "vital":
            name, value = entry["name"], entry.get("value")
            text = "couldn't be measured" if value is None else with_unit(name, value)
            said.append({"place": None, "text": f"{VITAL_NAMES[name]}: {text}"})
        elif is_said(entry):
            said.append({"place": place, "speaker": entry["actor"], "text": entry["utterance"]})
    return {"name": item.name, "facts": facts(item.episode), "said": said, "scale": item.episode["algorithm"]}


def read_key(path: Path) -> dict[str, dict[str, str]]:
    """The key by item."""
    return {row["item"]: row for row in read_table(path)}
