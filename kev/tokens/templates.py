"""Running a model's chat template: Jinja in a sandbox, with the helpers such templates expect."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

Clock = Callable[[], datetime]

FALLBACK_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] + '\n\n' }}"
    "{% elif message['role'] == 'user' %}{{ 'Question: ' + message['content'] + '\n' }}"
    "{% else %}{{ 'Answer: ' + message['content'] + '\n\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Answer:' }}{% endif %}"
)
"""For a model without a chat template (a base model): the system text, then `Question:` and `Answer:` lines."""


class ChatTemplateError(ValueError):
    """The model's chat template cannot be used, or refuses these messages; the text says why."""


class ChatTemplate:
    """One compiled template. Rendering depends on nothing but the messages and the clock.

    Attributes:
        named: Texts that stand in the source between quotes.
    """

    def __init__(self, source: str, bos: str, eos: str, clock: Clock) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = self._strftime
        self._clock = clock
        self._dates: dict[str, str] = {}
        self._fixed = {"bos_token": bos, "eos_token": eos, "tools": None, "documents": None}
        try:
            self._template = environment.from_string(source)
            constants = environment.parse(source).find_all(nodes.Const)
        except TemplateSyntaxError as error:
            raise ChatTemplateError(f"the model's chat template is not valid: {error}") from error
        self.named = frozenset(node.value for node in constants if isinstance(node.value, str) and node.value)

    def same_date(self) -> bool:
        """Whether every date that the template has written would be written again now."""
        return all(self._clock().strftime(form) == date for form, date in self._dates.items())

    def _strftime(self, form: str) -> str:
        date = self._dates[form] = self._clock().strftime(form)
        return date

    def render(self, messages: Sequence[dict[str, str]], add_generation_prompt: bool) -> str:
        """The prompt as text.

        Raises:
            ChatTemplateError: the template refuses the messages, fails, or asks for what the sandbox forbids.
        """
        try:
            return self._template.render(
                messages=list(messages), add_generation_prompt=add_generation_prompt, **self._fixed
            )
        except ChatTemplateError:
            raise
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise ChatTemplateError(f"messages: the model's chat template fails on them: {error}") from error


def _refuse(text: str) -> None:
    raise ChatTemplateError(f"messages: the model's chat template refuses them: {text}")


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    """Plain JSON; Jinja's own filter would escape characters for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)
