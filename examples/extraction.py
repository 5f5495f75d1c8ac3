"""Extraction: three separate questions about each of three documents. Run: python examples/extraction.py

A document becomes a context pool: it is computed once, and each question about it reads it in its own channel.
Entities are held to a JSON schema, the sentiment to three words; the summary is free.
"""

import json
import sys

import kev

DOCUMENTS = {
    "harbour": "The harbour festival in Bergen opened on Saturday in bright sunshine. Mayor Ingrid Solheim welcomed "
    "twelve thousand guests, and the shipyard Laksevag Verft showed its first electric ferry. Visitors praised the "
    "food and the music, and every hotel in the city was full. The organisers want to repeat it next year.",
    "review": "I bought the Aerolite kettle from Norton & Vale in March. It broke after nine days. Their support in "
    "Leeds never answered my letters, and the shop refused to give my money back. The lid is loose, the cable is too "
    "short, and the water tastes of plastic. I am very disappointed and would not buy from them again.",
    "report": "Pumping station 4 near Arnhem was inspected on 12 May by Joost de Wit of the water board. Two valves "
    "were replaced and the flow meter was calibrated. The next inspection is planned for November. The station has "
    "been in service since 1998 and supplies about 30,000 households.",
}
NAME = {"type": "string", "maxLength": 30}
ENTITIES = {
    "type": "object",
    "properties": {"person": NAME, "place": NAME, "year_or_month": NAME},
    "required": ["person", "place", "year_or_month"],
    "additionalProperties": False,
}
TASKS = {
    "entities": {
        "text": "Which person, which place and which month or year does the text name? Answer as JSON.",
        "constraint": {"json_schema": ENTITIES},
        "max_tokens": 80,
    },
    "sentiment": {
        "text": "Is the mood of the text positive, negative or neutral?",
        "constraint": {"choices": ["positive", "negative", "neutral"]},
    },
    "summary": {"text": "Summarise the text in one sentence.", "max_tokens": 60, "repetition_penalty": 1.05},
}


def main() -> int:
    """Asks everything in one batch and prints it by document."""
    flags = {"isolation.level": "loose", "core.precision": "bf16"}
    with kev.Engine.from_config(flags=flags) as engine:
        for name, text in DOCUMENTS.items():
            engine.create_context(name, text)
        questions = [
            {**task, "id": f"{name}/{kind}", "context_pool": name} for name in DOCUMENTS for kind, task in TASKS.items()
        ]
        results = engine.wait(engine.submit(questions, isolation="loose"))
    shared = sum(result.audit.shared_tokens for result in results)
    asked = sum(result.audit.prompt_tokens for result in results)
    for result in results:
        name, _, kind = result.id.partition("/")
        if kind == "entities":
            print(f"\n{name}")
        value = result.text.strip() if result.ok else f"{result.status}: {result.reason} {result.detail}"
        print(f"  {kind:10} {json.loads(value) if kind == 'entities' and result.finish_reason == 'stop' else value}")
    print(f"\n{len(results)} answers; {shared} of {asked} prompt tokens were there already, or shared")
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
