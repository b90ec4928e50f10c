"""Requests to a hosted model that are cancelled at any moment, as foreseen calls are that turn out not to be needed."""

from __future__ import annotations

import asyncio

from fault_server import FaultServer
from triagesim.answers import PatientReply
from triagesim.backends.hosted import OpenAICompatible
from triagesim.requests import CallName, Request

#: Turns of the event loop after which a request is cancelled: while it connects, sends, waits, reads.
MOMENTS = 60


def _request() -> Request:
    messages = [{"role": "user", "content": "Where does it hurt?"}]
    return Request(CallName("case-1-0", "patient", turn=1), "patient", messages, PatientReply, {}, 1)


def test_the_next_request_is_answered_whenever_the_one_before_was_cancelled() -> None:
    """httpcore 1.0 can count a cancelled request as running; and the next one would wait for it for ever."""

    async def go(url: str) -> list[str]:
        reasons = []
        for moment in range(MOMENTS):
            backend = OpenAICompatible("m", base_url=url, max_workers=1)
            await backend.start()
            for _ in range(2):  # on a new connection, and on one that is kept
                task = asyncio.create_task(backend.complete(_request()))
                for _ in range(moment):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                reasons.append((await asyncio.wait_for(backend.complete(_request()), 20)).finish_reason)
            await backend.close()
        return reasons

    with FaultServer() as server:
        assert asyncio.run(go(server.url)) == ["stop"] * (2 * MOMENTS)
