"""Kev in one process: whole results, a stream, and async code. Run: python examples/engine.py"""

import asyncio

import kev

QUESTIONS = [
    "What is the capital of France?",
    {"id": "river", "text": "Name a river in Egypt.", "max_tokens": 20},
    {"id": "refund", "messages": [{"role": "user", "content": "请问怎么申请退款？"}], "max_tokens": 40},
]


async def from_async_code(engine: kev.Engine) -> None:
    """The same methods, awaited; they work on any event loop."""
    request_id = await engine.aio.submit(["Name a colour.", "Name a fruit."], max_tokens=12)
    for result in await engine.aio.wait(request_id):
        print(f"  {result.slot}: {result.text!r}")


def main() -> None:
    """Asks in three ways."""
    with kev.Engine.from_config() as engine:
        print("Whole results:")
        request_id = engine.submit(QUESTIONS, isolation="strict", max_tokens=40)
        for result in engine.wait(request_id, timeout=120):
            print(f"  {result.id or result.slot}: channel {result.channel_id}, {result.elapsed_ms:.0f} ms,", end=" ")
            print(f"{result.tokens} tokens: {result.text!r}")

        print("A stream (leaving it would cancel what is unfinished):")
        for frame in engine.ask("Count from one to ten.", max_tokens=40):
            print(frame.text, end="", flush=True)
        print()

        print("From async code:")
        asyncio.run(from_async_code(engine))


if __name__ == "__main__":
    main()
