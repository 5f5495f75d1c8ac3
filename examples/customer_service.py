"""Customer service: what does a customer want? Run: python examples/customer_service.py [--limit N]

The answer is held to a list of intents, so that it can be routed as it is; its log probability says how sure the
model is. One example of each intent stands before every question, as earlier turns of the conversation.

The questions are from BANKING77 (PolyAI, CC BY 4.0).
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import kev

FILE = Path(__file__).with_name("banking_questions.jsonl")
EXAMPLES = {
    "cash": "Where can I take out cash?",
    "transfer": "Please stop the payment I just sent.",
    "details": "I moved and have a new phone number.",
    "rate": "I paid abroad and got fewer euros than I should.",
    "passcode": "I cannot remember my PIN for the app.",
    "stolen": "Someone took my wallet with my card in it.",
    "delivery": "I ordered a card, when will it come?",
    "account": "I want to leave the bank for good.",
}


def conversation(text: str) -> list[dict[str, str]]:
    """One example for each intent as earlier turns, then the question."""
    turns = [
        {"role": role, "content": content}
        for intent, example in EXAMPLES.items()
        for role, content in (("user", example), ("assistant", intent))
    ]
    return [*turns, {"role": "user", "content": text}]


def main() -> int:
    """Sorts the questions and prints how many were sorted right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=int, default=24, help="so many questions")
    lines = FILE.read_text(encoding="utf-8").splitlines()[: parser.parse_args().limit]
    items = [json.loads(line) for line in lines]
    choices = {"constraint": {"choices": list(EXAMPLES)}}
    questions = [{"id": item["id"], "messages": conversation(item["text"]), **choices} for item in items]
    with kev.Engine.from_config(flags={"core.precision": "bf16"}) as engine:
        began = time.perf_counter()
        request = engine.submit(questions, max_tokens=16, logprobs=0, timeout_ms=600_000)
        results = engine.wait(request)
        seconds = time.perf_counter() - began
    right = 0
    for item, result in zip(items, results, strict=True):
        good = result.text == item["intent"]
        right += good
        sure = math.exp(sum(one.chosen.logprob for one in result.logprobs))
        print(f"{'+' if good else '-'} {result.text or result.status:10} {sure:6.1%}  {item['text'][:80]}")
    print(f"\n{right} of {len(items)} sorted right (by chance 1 of {len(EXAMPLES)}), in {seconds:.1f} s")
    return 0 if all(result.text in EXAMPLES for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
