"""The pages tell the truth: files that they name exist, tables are fresh, every key has its place."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kev.config.load import SECTIONS

PAGES = (
    "README.md",
    "docs/configuration.md",
    "docs/one-question.md",
    "docs/answers.md",
    "docs/audit.md",
    "docs/models.md",
    "docs/isolation.md",
)
FOLDERS = ("", "router_svc/", "inference_svc/", "aggregator_svc/", "kev/app/")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(repository: Path, page: str) -> None:
    text = (repository / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert ((repository / page).parent / target).exists(), target


def test_the_page_about_one_question_names_files_that_exist(repository: Path) -> None:
    text = (repository / "docs/one-question.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_0-9/]+(?:\.py|\.proto|\.toml|/))`", text))
    assert len(named) > 30
    assert [name for name in named if not any((repository / place / name).exists() for place in FOLDERS)] == []


def test_the_tables_of_the_configuration_page_are_fresh(repository: Path) -> None:
    command = [sys.executable, "scripts/config_table.py", "--check"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_every_key_is_explained(repository: Path) -> None:
    text = (repository / "docs/configuration.md").read_text(encoding="utf-8")
    assert not re.findall(r"^\| `\w+` \|.*\|\s*\|$", text, re.MULTILINE), "a key without a docstring in settings.py"


def test_the_sample_file_holds_every_key(repository: Path) -> None:
    sample = yaml.safe_load((repository / "kev.yaml").read_text(encoding="utf-8"))
    assert {name: set(section) for name, section in sample.items()} == {
        name: set(section.model_fields) for name, section in SECTIONS.items()
    }
