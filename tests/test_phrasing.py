"""What words of a line count as: question forms, disfluencies, backchannels, feelings, lexical diversity."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triagesim import phrasing


@pytest.mark.parametrize(
    ("line", "forms"),
    [
        ("What brings you in today?", ["open"]),
        ("Okay, and how did it start?", ["open"]),
        ("Hi, I'm the triage nurse. Could you please tell me about the pain?", ["open"]),
        ("Tell me in your own words what happened.", ["open"]),
        ("Right. Tell me, do you have to fight for breath?", ["closed"]),
        ("Tell me when it happened.", ["closed"]),
        ("Does it hurt?", ["closed"]),
        ("Any allergies?", ["closed"]),
        ("Is it sharp or dull? And where is it?", ["closed", "closed"]),
        ("How long have you had it?", ["closed"]),
        ("Score the pain for me, out of ten.", ["closed"]),
        ("How bad is it, zero to ten?", ["closed"]),
        ("When you cough, what happens?", ["closed"]),
        ("Since your fall, what has changed?", ["open"]),
        ("Pain anywhere else?", ["closed"]),
        ("Okay? I'll take your pulse now.", []),
        ("I'm sorry you're hurting.", []),
    ],
)
def test_a_question_is_open_or_closed_by_its_form(line: str, forms: list[str]) -> None:
    assert phrasing.question_forms(line) == forms


@pytest.mark.parametrize(
    ("line", "fillers", "repetitions", "repairs"),
    [
        ("Um, it's, uh, my, my side.", 2, 1, 0),
        ("You know, it, like, just came on, I mean.", 3, 0, 0),
        ("I like it. I mean what I say, you know him.", 0, 0, 0),
        ("They drove me to the ER. Er, yes.", 1, 0, 0),
        ("It was, it was so bad, so bad.", 0, 1, 0),
        ("I'm fine, very, very fine.", 0, 0, 0),
        ("Tel- telling you, it came on Mon- no, wait, Tuesday.", 0, 0, 3),
        ("A two- or three-day pain, well-known.", 0, 0, 0),
        ("I was going to—", 0, 0, 1),
    ],
)
def test_disfluencies_are_counted_and_emphasis_is_not(line: str, fillers: int, repetitions: int, repairs: int) -> None:
    assert (phrasing.fillers(line), phrasing.repetitions(line), phrasing.repairs(line)) == (
        fillers,
        repetitions,
        repairs,
    )


def test_disfluencies_don_t_hide_what_is_said() -> None:
    assert phrasing.fluent("Um, am I going to, to be o- okay?") == ", am i going to be okay?"
    assert phrasing.shows_feeling("Uh, am I going to, to be o- okay?")
    assert phrasing.asks_back("Sorry, um, wh- what do you mean?")


@pytest.mark.parametrize(
    "line", ["I'm really scared.", "Is it serious?", "Don’t let me die.", "No. Please don't leave me."]
)
def test_fear_in_a_patient_s_words_is_a_cue(line: str) -> None:
    assert phrasing.shows_feeling(line)


@pytest.mark.parametrize(
    "line", ["I'm not worried.", "I wasn't too scared.", "It hurts here.", "Nothing to panic about."]
)
def test_what_is_denied_or_only_a_symptom_is_no_cue(line: str) -> None:
    assert not phrasing.shows_feeling(line)


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("I can see you're worried. Any fever?", True),
        ("That must be frightening.", True),
        ("You're in good hands.", True),
        ("Sit where I can see you.", False),
        ("Sorry, I'll say it more simply.", False),
        ("I understand, but it matters for your care.", False),
        ("Any fever?", False),
    ],
)
def test_a_nurse_answers_a_feeling_only_with_words_about_it(line: str, answers: bool) -> None:
    assert phrasing.answers_feeling(line) is answers


@pytest.mark.parametrize(
    ("line", "begins", "only"),
    [
        ("Okay, thanks. Any fever?", True, False),
        ("Mm-hm.", True, True),
        ("Okay?", False, True),
        ("Right, an abscess. Any fever?", False, False),
        ("", False, False),
    ],
)
def test_a_backchannel_is_a_sentence_of_nothing_else(line: str, begins: bool, only: bool) -> None:
    assert (phrasing.begins_listening(line), phrasing.only_listens(line)) == (begins, only)


def test_words_are_split_the_same_with_either_apostrophe() -> None:
    assert phrasing.tokens("I’ve a well-kept X-ray, 7/10 – it's") == [
        "i've",
        "a",
        "well-kept",
        "x-ray",
        "7",
        "10",
        "it's",
    ]
    assert phrasing.articles("The cat, an owl and a dog; another one.") == 3


def test_lexical_diversity_is_the_mean_over_all_windows() -> None:
    # Windows of three: aba 2, bac 3, acc 2, ccc 1; their mean over three words each is 8/12.
    assert phrasing.mattr(list("abaccc"), window=3) == pytest.approx(8 / 12)
    assert phrasing.mattr(list("ab"), window=3) is None


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcde"), min_size=4, max_size=40))
def test_lexical_diversity_equals_the_definition(words: list[str]) -> None:
    windows = [words[place : place + 4] for place in range(len(words) - 3)]
    plain = sum(len(set(window)) for window in windows) / (4 * len(windows))
    assert phrasing.mattr(words, window=4) == pytest.approx(plain)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_text_breaks_a_measure(text: str) -> None:
    for measure in (phrasing.fillers, phrasing.repetitions, phrasing.repairs, phrasing.articles):
        assert measure(text) >= 0
    assert all(form in ("open", "closed") for form in phrasing.question_forms(text))
    phrasing.fluent(text), phrasing.shows_feeling(text), phrasing.answers_feeling(text), phrasing.asks_back(text)
