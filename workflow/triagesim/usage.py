"""What a journal's answers took: calls, tokens, money, and the tries that failed, from the journal alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triagesim.journal import read_records
from triagesim.requests import Usage
from triagesim.shards import bucket


@dataclass
class Account:
    """The sums over a journal's records.

    Attributes:
        calls: answered calls; an answer that is there twice was paid twice and counts twice.
        purposes: answered calls by what they were for.
        usage: tokens, and US dollars as the providers report them.
        failures: tries that gave no answer, or one of no use, by kind.
        ended: status by episode; `given_up`: how often each episode was given up.
    """

    calls: int = 0
    purposes: Counter[str] = field(default_factory=Counter)
    usage: Usage = field(default_factory=Usage)
    failures: Counter[str] = field(default_factory=Counter)
    ended: dict[str, str] = field(default_factory=dict)
    given_up: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, records: Iterable[dict[str, Any]], episodes: Collection[str] | None = None) -> Account:
        """Add up records; those of `episodes` alone, if given."""
        account = cls()
        for record in records:
            name = str(record.get("name") or record.get("call") or record.get("episode"))
            if episodes is None or name.split("/")[0] in episodes:
                account._add(record, name)
        return account

    @property
    def failed(self) -> list[str]:
        """Episodes that were given up and not finished since."""
        return sorted(self.given_up.keys() - self.ended.keys())

    def as_json(self) -> dict[str, Any]:
        """As it is written beside the results."""
        return {
            "calls": self.calls,
            "by_purpose": dict(sorted(self.purposes.items())),
            **self.usage._asdict(),
            "failed_tries": dict(sorted(self.failures.items())),
            "given_up": sum(self.given_up.values()),
        }

    def _add(self, record: dict[str, Any], name: str) -> None:
        if "key" in record:
            if record["finish"] == "error":  # a call that failed for good; its tries are counted as they came
                return
            self.calls += 1
            self.purposes[name.split("/")[1] if "/" in name else name] += 1
            self.usage = self.usage.plus(Usage(*record["usage"]))
        elif "failed" in record:
            self.failures[record["failed"]] += 1
        elif "done" in record:
            self.ended[name] = record["done"]
        elif "gave_up" in record:
            self.given_up[name] += 1


def spent_on(journal: Path, cases: Iterable[str], episodes: Iterable[str]) -> dict[str, Any]:
    """What the answers of some episodes took, whichever run paid for them; `cases`: the ids of their cases."""
    folders = sorted({bucket(case) for case in cases})
    records = (record for name in folders for record in read_records(journal / name))
    return Account.of(records, set(episodes)).as_json()


def counted(failures: Counter[str]) -> list[str]:
    """Failed tries by kind as they are shown, `2 × rate limit`."""
    return [f"{count} × {kind.replace('_', ' ')}" for kind, count in sorted(failures.items())]
