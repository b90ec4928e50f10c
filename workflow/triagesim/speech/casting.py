"""Who of a dialogue gets which voice: by persona, seeded, one voice a patient, never one voice for two."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from triagesim.errors import InputError
from triagesim.jsonl import digest
from triagesim.resources import load_yaml
from triagesim.speech.voices import Speaker, Voice
from triagesim.splits import patient_key, split_of

_DIRECTION = "speech/direction.yaml"
_GENDERS = {"f": "female", "w": "female", "m": "male"}


class Casting:
    """The voices of a pool's dialogues.

    A patient keeps its voice through all episodes of its subject (of its case where the case names none); what the
    patient is like is read from the first of them. A nurse persona has a voice of its own unless the patient has it.
    Gender comes before age group, ethnicity and accent; what isn't known, or no voice has, doesn't restrict the choice.
    """

    def __init__(
        self,
        voices: Sequence[Voice],
        episodes: Iterable[Mapping[str, Any]],
        *,
        seed: int = 0,
        splits: Mapping[str, float] | None = None,
        split_seed: int = 0,
    ) -> None:
        """Learn who the patients are.

        Args:
            episodes: the whole pool, so that which of it is spoken changes no voice.
            splits: share of the patients by split, where no voice may be heard in two of them; None where any may.
            split_seed: of the draw of patients, as the dataset has it.

        Raises:
            InputError: there are too few voices for these splits.
        """
        self._seed = seed
        self._splits = splits
        self._split_seed = split_seed
        self._voices: dict[str | None, list[Voice]] = {None: list(voices)}
        if splits is not None:
            self._voices.update(share_voices(voices, splits, seed))
        self._patients: dict[str, Mapping[str, Any]] = {}
        for episode in sorted(episodes, key=lambda row: (row["episode_id"], row["pairing"])):
            self._patients.setdefault(patient_of(episode), episode)

    def __call__(self, episode: Mapping[str, Any]) -> dict[Speaker, Voice]:
        """The voices of an episode of the pool."""
        who = patient_of(episode)
        voices = self._voices[None if self._splits is None else split_of(who, self._splits, self._split_seed)]
        first = self._patients[who]
        seen = first.get("patient_persona") or {}
        gender = seen.get("gender") or (first.get("case") or {}).get("gender")
        patient = _draw(voices, {**seen, "gender": gender}, [self._seed, "patient", who])
        nurse = episode.get("nurse_persona") or {}
        others = [voice for voice in voices if voice.id != patient.id]
        cast: dict[Speaker, Voice] = {
            "nurse": _draw(others, {**nurse, "age_group": "adult"}, [self._seed, "nurse", nurse]),
            "patient": patient,
        }
        personas = {"nurse": nurse, "patient": episode.get("patient_persona") or {}}
        return {role: voice.model_copy(update={"tempo": tempo_of(personas[role])}) for role, voice in cast.items()}


def patient_of(episode: Mapping[str, Any]) -> str:
    """What tells the patient of an episode, as the splits tell it."""
    return patient_key({"case_id": episode["episode_id"].rpartition("-")[0], **(episode.get("case") or {})})


def tempo_of(persona: Mapping[str, Any]) -> float:
    """How much faster than usual its instruction wants a persona to speak, by `resources/speech/direction.yaml`."""
    known = _tempo()
    words = re.findall(r"[a-z]+", str(persona.get("instruction") or "").lower())
    tempo = 1.0
    for word in dict.fromkeys(words):
        tempo *= known.get(word, 1.0)
    return round(min(max(tempo, 0.7), 1.4), 3)


def share_voices(voices: Sequence[Voice], splits: Mapping[str, float], seed: int) -> dict[str, list[Voice]]:
    """Deal voices to splits: of each gender one or two to each before any has more, then by the splits' shares.

    Raises:
        InputError: there are fewer than two voices a split, or fewer than one of a gender that there is.
    """
    names = [name for name, share in splits.items() if share > 0]
    whole = sum(splits[name] for name in names)
    dealt: dict[str, list[Voice]] = {name: [] for name in names}
    genders = Counter(voice.gender for voice in voices)
    if len(voices) < 2 * len(names) or min(genders.values()) < len(names):
        have = ", ".join(f"{count} {gender}" for gender, count in sorted(genders.items()))
        raise InputError(
            f"audio.disjoint_splits: {len(names)} splits need two voices each, at least one of each gender, and the "
            f"engine has {have}; give it more voices or take fewer splits"
        )
    for voice in sorted(voices, key=lambda one: (one.gender, one.age_group, digest([seed, one.id]))):

        def need(name: str, voice: Voice = voice) -> tuple[bool, bool, float]:
            same = [one for one in dealt[name] if one.gender == voice.gender]
            like = any(one.age_group == voice.age_group for one in same)
            return len(same) < 2, not like, splits[name] / whole * genders[voice.gender] - len(same)

        dealt[max(names, key=need)].append(voice)
    return dealt


def _draw(voices: Sequence[Voice], persona: Mapping[str, Any], seed: list[Any]) -> Voice:
    """The best voice by a hash of seed and voice id, so that a further voice changes few choices."""
    gender = _GENDERS.get(str(persona.get("gender") or "").strip().lower()[:1])
    ethnicity = str(persona.get("ethnicity") or "").strip().casefold()
    asked = str(persona.get("instruction") or "").casefold()
    wishes: list[Callable[[Voice], bool]] = [
        lambda voice: voice.gender == gender,
        lambda voice: voice.age_group == persona.get("age_group"),
        lambda voice: bool(ethnicity) and ethnicity in (str(voice.ethnicity).casefold(), voice.accent.casefold()),
        lambda voice: voice.accent.casefold() in asked,
    ]
    fitting = list(voices)
    for wish in wishes:
        fitting = list(filter(wish, fitting)) or fitting
    return max(fitting, key=lambda voice: digest([seed, voice.id]))


@cache
def _tempo() -> dict[str, float]:
    return {str(word): float(value) for word, value in load_yaml(_DIRECTION)["tempo"].items()}
