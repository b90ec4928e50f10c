"""What the reviews say: answers by pairing, agreement among raters and with the dialogue master, rewritten lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from triagesim.bootstrap import CONFIDENCE, DRAWS, Array, draw, percentiles, ratio
from triagesim.errors import InputError
from triagesim.estimates import rounded
from triagesim.jsonl import read_table, write_table
from triagesim.measures import Rewrites, line_history, measure_rewrites, rewrite_rate, share_changed
from triagesim.review.kit import load_episodes, read_key, spoken
from triagesim.review.questions import LEVEL, asked
from triagesim.review.reliability import Agreement, ac1, cohen, fleiss, krippendorff, same
from triagesim.review.returned import Reviewed, read_returned

AGREEMENT = ("question", "between", "measure", "value", "low", "high", "dialogues", "answers", "note")
MEANS = ("by", "value", "question", "mean", "low", "high", "dialogues", "answers")
REWRITES = ("by", "value", "agent_revisions", "rewritten", "rate", "edited_lines")
RATINGS = ("rater", "item", "repeat_of", "pairing", "episode_id", "acuity", "final_triage", "question", "answer")

# Answers of a question or a level, and of a judgement that passes or fails.
_FIVE, _TWO = 5, 2
# A clinician's edit has the time of the line itself.
_AT_ONCE = timedelta(0)
Pairs = list[list[tuple[int, int]]]


class Reviews(NamedTuple):
    """All that came back, with what it is about.

    Attributes:
        key: the kit's key by item; `episodes`: by item.
        first: raters and their reviews by item, without items that show a dialogue again.
        again: for such an item, by rater, the review of the first showing and of this one.
    """

    key: dict[str, dict[str, str]]
    episodes: dict[str, dict[str, Any]]
    all: dict[tuple[str, str], Reviewed]
    first: dict[str, dict[str, Reviewed]]
    again: dict[str, list[tuple[Reviewed, Reviewed]]]


def write_results(
    returned: Sequence[Path], key: Path, episodes: Iterable[Path], out_dir: Path, folder: Path | None = None
) -> Reviews:
    """Write `ratings.csv`, `means.csv`, `agreement.csv` and `rewrites.csv`.

    Args:
        folder: where the returned files were looked for.

    Raises:
        InputError: nothing came back, or a row isn't what the kit asked for.
    """
    if not returned:
        where = "the folder that review.returned names"
        where = f"{folder}, {where}" if folder else where
        raise InputError(f"no filled-in review file: put the raters' .csv files into {where}")
    reviews = _load(returned, key, episodes)
    write_table(out_dir / "ratings.csv", RATINGS, _ratings(reviews))
    write_table(out_dir / "means.csv", MEANS, _means(reviews))
    write_table(out_dir / "agreement.csv", AGREEMENT, _agreement(reviews))
    write_table(out_dir / "rewrites.csv", REWRITES, _rewrites(reviews))
    return reviews


def _load(returned: Sequence[Path], key_file: Path, episodes: Iterable[Path]) -> Reviews:
    key = read_key(key_file)
    wanted = {(row["pairing"], row["episode_id"]) for row in key.values()}
    loaded = load_episodes(episodes, wanted)
    if missing := sorted(wanted - loaded.keys()):
        raise InputError(f"{key_file}: episode {'/'.join(missing[0])} isn't among the episodes; make the kit anew")
    own = {item: loaded[row["pairing"], row["episode_id"]] for item, row in key.items()}
    lines = {item: {place: text for place, _, text in spoken(episode)} for item, episode in own.items()}
    every = read_returned(returned, lines)
    first: dict[str, dict[str, Reviewed]] = defaultdict(dict)
    again: dict[str, list[tuple[Reviewed, Reviewed]]] = defaultdict(list)
    for (rater, item), review in sorted(every.items()):
        before = key[item]["repeat_of"]
        if not before:
            first[item][rater] = review
        elif (rater, before) in every:
            again[item].append((every[rater, before], review))
    return Reviews(key, own, every, dict(first), dict(again))


def _ratings(reviews: Reviews) -> Iterator[list[Any]]:
    for (rater, item), review in sorted(reviews.all.items()):
        row = reviews.key[item]
        about = [row[name] for name in ("repeat_of", "pairing", "episode_id", "acuity", "final_triage")]
        for question, answer in review.answers.items():
            yield [rater, item, *about, question, answer]


def _means(reviews: Reviews) -> Iterator[list[Any]]:
    """The mean answer to each question, for all dialogues and by pairing; dialogues are drawn for the interval."""
    pairings = sorted({reviews.key[item]["pairing"] for item in reviews.first})
    for by, value in (("all", ""), *(("pairing", pairing) for pairing in pairings)):
        items = [item for item in reviews.first if by == "all" or reviews.key[item]["pairing"] == value]
        for question in (*asked().questions, LEVEL):
            given = [_answers(reviews, item, question) for item in items]
            sums = np.array([[sum(answers), len(answers)] for answers in given if answers], dtype=float).reshape(-1, 2)
            if not len(sums):
                continue
            total = sums.sum(0)
            low, high, _ = percentiles(draw(sums, DRAWS, 0), ratio, CONFIDENCE).where_drawn_apart()
            mean = rounded(total[0] / total[1])
            yield [by, value, question, mean, rounded(low), rounded(high), len(sums), int(total[1])]


def _answers(reviews: Reviews, item: str, question: str) -> list[int]:
    return [r.answers[question] for r in reviews.first[item].values() if question in r.answers]


def _agreement(reviews: Reviews) -> Iterator[list[Any]]:
    for question in (*asked().questions, LEVEL):
        for between, measure, found in (*_among(reviews, question), *_twice(reviews, question)):
            yield [question, between, measure, *found]
    for question, between, measure, found in (*_with_labels(reviews), *_with_master(reviews)):
        yield [question, between, measure, *found]


def _among(reviews: Reviews, question: str) -> Iterator[tuple[str, str, Agreement]]:
    """All raters together, then two by two."""
    counts = _counts([_answers(reviews, item, question) for item in reviews.first], _FIVE)
    yield "raters", "krippendorff_alpha_ordinal", krippendorff(counts, _FIVE, "ordinal")
    yield "raters", "fleiss_kappa", fleiss(counts, _FIVE)
    yield "raters", "gwet_ac1", ac1(counts, _FIVE)
    raters = sorted({rater for given in reviews.first.values() for rater in given})
    for one, other in combinations(raters, 2):
        pairs: Pairs = [
            [(given[one].answers[question], given[other].answers[question])]
            for given in reviews.first.values()
            if all(rater in given and question in given[rater].answers for rater in (one, other))
        ]
        yield f"{one}, {other}", "cohen_kappa", cohen(pairs, _FIVE, 0)
        yield f"{one}, {other}", "cohen_kappa_quadratic", cohen(pairs, _FIVE, 2)


def _twice(reviews: Reviews, question: str) -> Iterator[tuple[str, str, Agreement]]:
    """The same raters on the same dialogue, shown again."""
    pairs: Pairs = [
        [
            (b.answers[question], a.answers[question])
            for b, a in shown
            if question in b.answers and question in a.answers
        ]
        for shown in reviews.again.values()
    ]
    if reviews.again:
        yield "the same rater again", "share_same", same(pairs)
        yield "the same rater again", "cohen_kappa_quadratic", cohen(pairs, _FIVE, 2)


def _with_labels(reviews: Reviews) -> Iterator[tuple[str, str, str, Agreement]]:
    """The raters' levels beside the label (on its own scale alone) and beside the nurse's final level."""
    for name, column in (("label", "acuity"), ("nurse", "final_triage")):
        pairs: Pairs = []
        for item in reviews.first:
            row = reviews.key[item]
            if row[column] and (column != "acuity" or row["acuity_scale"] == row["algorithm"]):
                pairs.append([(int(row[column]), level) for level in _answers(reviews, item, LEVEL)])
        yield LEVEL, f"{name}, raters", "share_same", same(pairs)
        yield LEVEL, f"{name}, raters", "cohen_kappa_quadratic", cohen(pairs, _FIVE, 2)


def _with_master(reviews: Reviews) -> Iterator[tuple[str, str, str, Agreement]]:
    """The dialogue master's checks beside the raters: by dialogue for its judgements, by line for what it let stand."""
    checked = [item for item in reviews.first if any(_checks(reviews.episodes[item]))]
    if not checked:
        return
    for name, question in asked().questions.items():
        if question.check is None:
            continue
        pairs: Pairs = []
        for item in checked:
            passed = all(_stands(check, question.check) for _, check in _checks(reviews.episodes[item]))
            answers = _answers(reviews, item, name)
            pairs.append([(1 + passed, 1 + (answer >= question.acceptable)) for answer in answers])
        yield from ((name, "master, raters", measure, found) for measure, found in _binary(pairs))
    lines: Pairs = []
    for item in checked:
        texts = {place: text for place, _, text in spoken(reviews.episodes[item])}
        lines.append(
            [
                (1 + _stands(check, None), 1 + (not _rewritten(texts[place], review.edits.get(place))))
                for review in reviews.first[item].values()
                for place, check in _checks(reviews.episodes[item])
                if place in texts
            ]
        )
    yield from (("lines", "master, raters", measure, found) for measure, found in _binary(lines))


def _binary(pairs: Pairs) -> Iterator[tuple[str, Agreement]]:
    yield "share_same", same(pairs)
    yield "cohen_kappa", cohen(pairs, _TWO, 0)
    flat = [(item, pair) for item, found in enumerate(pairs) for pair in found]
    counts = _counts([list(pair) for _, pair in flat], _TWO)
    yield "gwet_ac1", ac1(counts, _TWO, clusters=[item for item, _ in flat])


def _checks(episode: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The master's checks of an episode by place; one that failed to answer says nothing."""
    for place, entry in enumerate(episode["history"]):
        check = entry.get("verification")
        if check and check.get("passed") is not None:
            yield place, check


def _stands(check: Mapping[str, Any], judgement: str | None) -> bool:
    """Whether the line that stands passes: by all judgements or by one. A line that the master wrote does."""
    if check["passed"] or check.get("edited"):
        return True
    return judgement is not None and (check.get("verdict") or {}).get(judgement) is not False


def _rewritten(text: str, edit: str | None) -> bool:
    return edit is not None and share_changed(text, edit) >= asked().rewritten


def _rewrites(reviews: Reviews) -> Iterator[list[Any]]:
    """How many of the models' lines the raters rewrote: in all, by pairing, by speaker and by rater."""
    found: defaultdict[tuple[str, str], list[tuple[Rewrites, bool]]] = defaultdict(list)
    for item, given in reviews.first.items():
        episode = reviews.episodes[item]
        for rater, review in given.items():
            for place, speaker, _ in spoken(episode):
                edit = review.edits.get(place)
                history = line_history(episode, place, edit)
                one = measure_rewrites(history, window=_AT_ONCE, threshold=asked().rewritten)
                groups = (("pairing", reviews.key[item]["pairing"]), ("speaker", speaker), ("rater", rater))
                for group in (("all", ""), *groups):
                    found[group].append((one, edit is not None))
    order = ["all", "pairing", "speaker", "rater"]
    for by, value in sorted(found, key=lambda group: (order.index(group[0]), group[1])):
        lines = [one for one, _ in found[by, value]]
        rate = rewrite_rate(lines)
        written, rewritten = sum(one.agent_revisions for one in lines), sum(one.rewritten for one in lines)
        edited = sum(edit for _, edit in found[by, value])
        yield [by, value, written, rewritten, rounded(rate), edited]


def _counts(answers: list[list[int]], k: int) -> Array:
    counts = np.zeros((len(answers), k))
    for item, given in enumerate(answers):
        for answer in given:
            counts[item, answer - 1] += 1
    return counts


def closing(out_dir: Path) -> str:
    """The main figures of a written review, in a few lines."""
    rows = [row for row in read_table(out_dir / "agreement.csv") if row["between"] == "raters"]
    return "\n".join(
        f"{row['question']:<14}{row['measure']:<28}{row['value'] or '–':>10}  {row['note']}" for row in rows
    )
