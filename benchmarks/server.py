"""A chat completion server on loopback that answers every call of the dialogues after a fixed time.

Takes a job as one line of JSON on stdin, prints its base URL, and serves until stdin closes. A request says by its seed
which call of which episode it is.
"""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any

from dialogue import TURNS, Dialect, answer, length, trace
from instant import EDITS, as_call
from places import Places, episode_ids
from triagesim.calls import call_seed
from triagesim.requests import CallName

PURPOSES = ("in_situ", "script", "nurse", "nurse_check", "patient", "patient_check", "reading", *EDITS)


class Answers:
    """What each request is answered: its seed tells the call."""

    def __init__(self, episodes: list[str], dialect: Dialect) -> None:
        self._dialect: Dialect = dialect
        self._lengths = trace()
        self._places = Places(episodes) if dialect == "peer" else None
        self._names: dict[int, CallName] = {}
        for episode in [] if dialect == "peer" else episodes:
            for purpose in PURPOSES:
                for place in range((TURNS + 1) * 3 * 2):
                    turn, step, draft = place // 6, place // 2 % 3, place % 2
                    name = CallName(episode, purpose, turn, step, draft)
                    self._names[call_seed(0, name)] = name

    def to(self, body: dict[str, Any]) -> tuple[str, int]:
        """Text and length in tokens of the answer to a request."""
        form = body["response_format"]["json_schema"]["name"]
        if self._places is not None:
            asked: Any = SimpleNamespace(seed=body["seed"], output_type=SimpleNamespace(__name__=form))
            call, speaker = self._places.find(asked), "patient" if form == "PatientLineEdit" else "nurse"
        else:
            name = self._names[body["seed"]]
            call, speaker = as_call(name), EDITS.get(name.purpose, "nurse")
        tokens = length(call, self._lengths)
        return answer(call, tokens, self._dialect, speaker), tokens


async def serve(job: dict[str, Any]) -> None:
    """Listen on any free port until stdin closes."""
    answers = Answers(episode_ids(job), job["dialect"])

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                size = int(head.partition("content-length:")[2].partition("\r\n")[0])
                body = json.loads(await reader.readexactly(size))
                await asyncio.sleep(job["latency"])
                writer.write(_response(body, *answers.to(body)))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", 0, limit=2**22)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


def _response(body: dict[str, Any], text: str, tokens: int) -> bytes:
    prompt = sum(len(message["content"]) for message in body["messages"]) // 4
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
    whole = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
    content = json.dumps(whole).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.stdin.readline())))
