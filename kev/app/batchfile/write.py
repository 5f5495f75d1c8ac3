"""What a run leaves behind: the result file, and the audit file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from kev.app.logprobs import logprob_records
from kev.domain.errors import KevError
from kev.domain.result import SlotResult


class NotWritten(KevError):
    """A file could not be written; the text says which, and why."""


class Lines:
    """A file of lines, or standard output. A context manager; what cannot be written is ``NotWritten``.

    Args:
        option: The option that named the file, for errors.
        path: None is standard output.
    """

    def __init__(self, option: str, path: Path | None) -> None:
        self._name = f"{option} {path}" if path else "standard output"
        self._path = path
        self._file: IO[str] = sys.stdout

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                self._file = self._path.open("w", encoding="utf-8", newline="\n")
            except OSError as error:
                raise self._failed(error) from None
        return self

    def write(self, line: str) -> None:
        """Writes a line.

        Raises:
            BrokenPipeError: nobody reads standard output any more.
        """
        try:
            self._file.write(line)
        except OSError as error:
            raise self._failed(error) from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.flush() if self._path is None else self._file.close()
        except OSError as late:
            if kind is None:
                raise self._failed(late) from None

    def _failed(self, error: OSError) -> Exception:
        if self._path is None:  # what is left in its buffer would fail once more when the process ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._file.fileno())
            if isinstance(error, BrokenPipeError):
                return error
        return NotWritten(f"{self._name}: cannot be written ({error.strerror or error})")


def result_line(result: SlotResult) -> str:
    """A line of the result file: only what does not vary from run to run."""
    logprobs = {"logprobs": logprob_records(result)} if result.logprobs else {}
    return _line(
        {
            "slot": result.slot,
            "id": result.id,
            "status": result.status,
            "finish_reason": result.finish_reason,
            "text": result.text,
            "reason": result.reason,
            "prompt_tokens": result.audit.prompt_tokens,
            "completion_tokens": result.audit.completion_tokens,
            "warnings": result.warnings,
            **logprobs,
        }
    )


def audit_line(result: SlotResult) -> str:
    """A line of the audit file: everything, with channel, times and attempts."""
    record = msgspec.to_builtins(msgspec.structs.replace(result, logprobs=()))
    return _line({**record, "logprobs": logprob_records(result)})


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"
