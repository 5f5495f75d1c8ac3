"""The JSON that callers send: checked for form here, for sense by the router."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, model_validator

from kev.client import fields
from kev.client.queries import batch_of
from kev.domain.errors import InvalidArgument
from kev.domain.logprobs import MOST_TOP
from kev.domain.question import MAX_QUESTIONS, Batch, Isolation, Priority, ResultMode, Strategy

Whole = Annotated[int, Field(ge=0, le=2**32 - 1)]
Count = Annotated[int, Field(ge=1, le=2**32 - 1)]
Seed = Annotated[int, Field(ge=0, le=2**64 - 1)]
QUESTION_ALLOWED = "must be a text, or an object with text or messages"
MAX_KEYS = 32


class Body(BaseModel):
    """Base: no unknown keys, no silent conversions, no NaN; null is as if the key was not there.

    Every mistake that is noted costs time and memory, so their number is
    bounded: by the keys of an object, by the questions of a batch, and to the
    first one in anything else that has many parts.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _few_keys(cls, given: Any) -> Any:
        if isinstance(given, dict) and len(given) > MAX_KEYS:
            raise ValueError(f"must have at most {MAX_KEYS} keys, got {len(given)}")
        if not isinstance(given, dict):
            return given
        return {key: value for key, value in given.items() if value is not None or key not in cls.model_fields}


def _few_questions(given: Any) -> Any:
    if isinstance(given, list) and len(given) > MAX_QUESTIONS:
        raise ValueError(f"must hold 1 to {MAX_QUESTIONS:,} questions; got {len(given):,}")
    return given


def _one_or_more(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


def _first_bias(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    try:
        fields.biases("", given)
    except InvalidArgument as error:
        raise ValueError(str(error).removeprefix(": ")) from None
    return given


def _label(given: Any) -> Any:
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


class MessageBody(Body):
    """One turn of a conversation."""

    role: str = Field(description="system, user or assistant")
    content: str


class ConstraintBody(Body):
    """What an answer may be: one of the three."""

    choices: Annotated[list[str], FailFast()] = Field([], description="One of these strings.")
    json_schema: Any = Field(None, description="A JSON schema, or its text.")
    regex: str | None = Field(None, description="An expression that the whole answer matches.")


class QuestionBody(Body):
    """One question: a text alone, or an object."""

    text: str = ""
    messages: Annotated[list[MessageBody], FailFast()] = []
    id: Annotated[str, BeforeValidator(_label, json_schema_input_type=str | int)] = Field(
        "", description="Your own label, a text or a whole number, returned with the answer as a text."
    )
    max_tokens: Count | None = Field(None, description="Most new tokens.")
    timeout_ms: Count | None = Field(None, description="From acceptance to the question's deadline.")
    routing_key: str = Field("", description="Questions with the same key share a home channel.")
    priority: Annotated[Priority, Field(strict=False)] = Priority.NORMAL
    temperature: float = Field(0.0, description="0 is greedy; at most 2.")
    top_k: Whole = Field(0, description="Keep the k likeliest tokens; 0 keeps all.")
    top_p: float = Field(1.0, description="Keep the smallest set with this much probability.")
    seed: Seed | None = Field(None, description="Fixes the question's random stream.")
    stop: Annotated[list[str], FailFast(), BeforeValidator(_one_or_more, json_schema_input_type=str | list[str])] = (
        Field([], description="The answer ends before the first of these; one may stand without a list.")
    )
    min_p: float = Field(0.0, description="Drop tokens below this share of the likeliest one's probability.")
    repetition_penalty: float = Field(1.0, description="For tokens in prompt or answer; above 0, at most 2.")
    presence_penalty: float = Field(0.0, description="For tokens in the answer; -2 to 2.")
    frequency_penalty: float = Field(0.0, description="For each time that the answer holds a token; -2 to 2.")
    logit_bias: Annotated[dict[str, float], BeforeValidator(_first_bias, json_schema_input_type=dict[str, float])] = (
        Field({}, description="Token id -> -100 to 100; at most 300.")
    )
    logprobs: Annotated[int, Field(ge=0, le=MOST_TOP)] | None = Field(
        None, description="Return log probabilities, also of so many likeliest tokens."
    )
    constraint: ConstraintBody | None = Field(None, description="What the answer may be.")
    context_pool: str = Field("", description="Name of a context that it reads; needs isolation loose.")
    truncate: bool = Field(False, description="Cut an over-long question instead of refusing it.")

    @model_validator(mode="before")
    @classmethod
    def _text_alone(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"text": given}
        if not isinstance(given, dict):
            raise ValueError(QUESTION_ALLOWED)
        return given


class QueryBody(Body):
    """A batch of questions."""

    queries: Annotated[
        list[QuestionBody], BeforeValidator(_few_questions, json_schema_input_type=list[str | QuestionBody])
    ] = Field(
        description="1 to 1,000 questions: texts, or objects.",
        examples=[["What is the capital of France?", {"text": "请问怎么退款？", "max_tokens": 60}]],
    )
    isolation: Annotated[Isolation | None, Field(strict=False)] = None
    mode: Annotated[ResultMode | None, Field(strict=False, description="The order of the results.")] = None
    max_parallel: Count | None = None
    strategy: Annotated[Strategy | None, Field(strict=False, description="How questions get their channels.")] = None
    prefix: str | None = Field(None, description="Text that stands before every question, as a system message.")
    request_id: str = Field("", description="For idempotence: the same id with the same batch runs once.")
    max_tokens: Count | None = Field(None, description="For questions that name none.")
    timeout_ms: Count | None = Field(None, description="For questions that name none.")
    constraint: ConstraintBody | None = Field(None, description="For questions that name none.")
    stream: bool = Field(False, description="Server-sent events instead of whole results.")

    def batch(self) -> Batch:
        """The domain's batch.

        Raises:
            InvalidArgument: a value is out of range; names the field.
        """
        given = self.model_dump(exclude_unset=True, exclude={"stream", "queries"}, exclude_none=True)
        return batch_of([query.model_dump(exclude_unset=True) for query in self.queries], **given)
