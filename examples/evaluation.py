"""An evaluation set: word problems, scored. Run: python examples/evaluation.py [--data FILE] [--limit N] [--alone N]

Prints accuracy, throughput, and in the same run the speed-up over asking one by one. FILE holds JSON lines with
``text`` and a numeric ``answer``, such as GSM8K's; without it, KEV_TEST_DATA/gsm8k_120.jsonl is taken, or the one in
a folder ``shared/data`` beside the repository, or the few problems below.
"""

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path

import kev

OWN = [
    ("Tom has 3 boxes with 4 pens each. How many pens has he?", "12"),
    ("A bus has 20 seats and 7 people get on. How many seats are free?", "13"),
    ("Mia reads 5 pages a day. How many pages does she read in a week?", "35"),
    ("A cake is cut into 8 pieces and 3 are eaten. How many pieces are left?", "5"),
    ("Two friends share 18 sweets equally. How many does each get?", "9"),
    ("A ticket costs 6 dollars. How much do 4 tickets cost?", "24"),
    ("Sam had 15 coins, lost 4 and found 2. How many coins has he now?", "13"),
    ("A farmer has 9 hens, and each lays 2 eggs. How many eggs are there?", "18"),
]
ASK = "\nWork it out in a few short steps, and end with: The answer is"


def problems(path: str) -> list[dict[str, str]]:
    """The problems of a file, or the built-in ones."""
    places = (
        [Path(path)]
        if path
        else [
            Path(os.environ.get("KEV_TEST_DATA", "")) / "gsm8k_120.jsonl",
            Path(__file__).resolve().parents[2] / "shared" / "data" / "gsm8k_120.jsonl",
        ]
    )
    for place in places:
        if path or place.is_file():
            return [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [{"text": text, "answer": answer} for text, answer in OWN]


def number_in(text: str) -> str:
    """The last number of an answer, without thousands separators; empty if there is none."""
    found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
    return found[-1].replace(",", "").removesuffix(".0").removesuffix(".00") if found else ""


def timed(engine: kev.Engine, questions: list[str], most: int) -> tuple[list, float]:
    """The results of one batch, and the tokens a second of its answers."""
    began = time.perf_counter()
    results = engine.wait(engine.submit(questions, max_tokens=most, timeout_ms=600_000))
    return results, sum(result.tokens for result in results) / (time.perf_counter() - began)


def main() -> int:
    """Asks all at once and some of them one by one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="", help="JSON lines with text and answer")
    parser.add_argument("--limit", type=int, default=32, help="so many problems")
    parser.add_argument("--alone", type=int, default=4, help="so many of them also one by one")
    parser.add_argument("--max-tokens", type=int, default=120)
    options = parser.parse_args()
    items = problems(options.data)[: options.limit]
    questions = [item["text"] + ASK for item in items]
    with kev.Engine.from_config(flags={"core.precision": "bf16"}) as engine:
        together, fast = timed(engine, questions, options.max_tokens)
        began, tokens, same = time.perf_counter(), 0, 0
        few = questions[: options.alone]
        for question, packed in zip(few, together, strict=False):
            ((alone,), _) = timed(engine, [question], options.max_tokens)
            tokens, same = tokens + alone.tokens, same + (alone.text == packed.text)
        slow = tokens / (time.perf_counter() - began)
    right = [number_in(result.text) == item["answer"] for item, result in zip(items, together, strict=True)]
    for item, result, good in list(zip(items, together, right, strict=True))[:8]:
        told = number_in(result.text) or result.status
        print(f"{'+' if good else '-'} {told:>8} (wanted {item['answer']:>6})  {item['text'][:80]}")
    print(f"\naccuracy    {sum(right)} of {len(items)} ({sum(right) / len(items):.1%})")
    print(f"throughput  {fast:.1f} tokens/s together, {slow:.1f} tokens/s one by one")
    print(f"speed-up    {fast / slow:.1f}")
    print(f"the same    {same} of {len(few)} answers are the same text, together and alone")
    return 0 if same == len(few) and all(result.ok for result in together) else 1


if __name__ == "__main__":
    sys.exit(main())
