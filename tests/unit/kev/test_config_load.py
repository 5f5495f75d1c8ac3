"""kev.yaml, environment and flags become settings; what is wrong is said in one clear line each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kev.config.load import ConfigError, load_settings, shown
from kev.config.settings import Settings


def load(tmp_path: Path, text: str, environment: dict[str, str] | None = None, **flags: object) -> Settings:
    path = tmp_path / "kev.yaml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path, environment=environment or {}, flags=flags)


def refused(tmp_path: Path, text: str, environment: dict[str, str] | None = None, **flags: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, environment, **flags)
    return str(caught.value)


def test_defaults_need_no_file() -> None:
    assert load_settings(environment={}) == Settings()


@pytest.mark.parametrize("text", ["", "# only a comment", "router:", "kev:", "kev: {}"])
def test_an_empty_file_and_empty_sections_are_the_defaults(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text) == Settings()


def test_sections_may_stand_below_a_root_key(tmp_path: Path) -> None:
    text = "kev:\n  deploy: {mode: distributed}\nrouter: {strategy: round_robin}"
    settings = load(tmp_path, text)
    assert (settings.deploy.mode, settings.router.strategy) == ("distributed", "round_robin")


def test_later_sources_win(tmp_path: Path) -> None:
    text = "core: {precision: bf16, threads: 3, max_context: 512}"
    environment = {"KEV_CORE_PRECISION": "int8", "KEV_CORE_THREADS": "2"}
    core = load(tmp_path, text, environment, core_precision="fp32").core
    assert (core.precision, core.threads, core.max_context) == ("fp32", 2, 512)


def test_flags_are_named_with_a_dot_or_an_underscore() -> None:
    flags = {"router.max_parallel_queries": 4, "core_max_context": 64, "core_threads": None}
    settings = load_settings(flags=flags, environment={"KEV_CORE_THREADS": "2"})
    assert (settings.router.max_parallel_queries, settings.core.max_context) == (4, 64)
    assert settings.core.threads == 2, "a flag that was not given changes nothing"


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"precision: unknown flag; name it section_key"):
        load_settings(flags={"precision": "fp32"}, environment={})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("nonsense: {a: 1}", "nonsense: unknown section; allowed: deploy, router"),
        ("router: {nonsense: 1}", "router.nonsense: unknown key; allowed: listen, aggregator"),
        (
            "router: {channel_pol_size: 1}",
            "router.channel_pol_size: unknown key; did you mean router.channel_",
        ),
        ("router: {precision: fp32}", "router.precision: unknown here; did you mean core.precision?"),
        ("precision: fp32", "precision: unknown here; did you mean core.precision?"),
        ("core: {kv_pages: 3}", "core.kv_pages: must be 0, or at least 128 for a max_context of 2048, got 3"),
        ("core: {max_context: 64, kv_pages: 15}", "core.kv_pages: must be 0, or at least 16 for a max_context of 64"),
        ("router: 5", "router: must hold keys (listen"),
        ("router: [1]", "router: must hold keys (listen"),
        ("1: 2", "1: unknown section"),
        ("router: {1: 2}", "router.1: unknown key"),
        (
            "core: {precision: float32}",
            "core.precision: Input should be 'fp32', 'bf16', 'fp16' or 'int8', got",
        ),
        (
            "router: {channel_pool_size: 0}",
            "router.channel_pool_size: Input should be greater than or equal to 1",
        ),
        ("router: {channel_pool_size: many}", "router.channel_pool_size: Input should be a valid integer"),
        ("router: {hash_buckets: true}", "router.hash_buckets: must not be true or false, got True"),
        ("router: {load_factor: yes}", "router.load_factor: "),
        ("core: {window_ms: false}", "core.window_ms: must not be true or false, got False"),
        ("router: {load_factor: .nan}", "router.load_factor: Input should be"),
        ("router: {listen: nowhere}", "router.listen: must be HOST:PORT"),
        ("router: {listen: 'a:70000'}", "router.listen: must be HOST:PORT"),
        ("bus: {url: localhost}", "bus.url: must be nats://HOST:PORT"),
        (
            "router: {pre_buckets: [{name: a, pattern: '(', share: 0.1}]}",
            "router.pre_buckets.0.pattern: is not a regular expression: missing ) at position 1, got '('",
        ),
        (
            "router: {pre_buckets: [{name: a, share: 0.1}]}",
            "router.pre_buckets.0: must have keywords, a pattern, or both",
        ),
        (
            "{router: {hash_buckets: 1, pre_buckets: [{name: a, pattern: x, share: 0.9}]}}",
            "router: pre_buckets must leave a bucket for all other questions: they own 1 of hash_buckets = 1",
        ),
        (
            "router: {pre_buckets: [{name: a, keywords: [x], share: 0.1}, {name: a, keywords: [y], share: 0.1}]}",
            "router: pre_buckets must have different names, got 'a' twice",
        ),
        ("router: {long_channels: 32}", "router: long_channels must be below channel_pool_size (32), got 32"),
        ("router: {strategy: length_aware}", "router: strategy length_aware needs long_channels of at least 1"),
        ("inference: {worker_id: Über}", "inference: worker_id must be lower case letters"),
        ("inference: {worker_id: overflow}", "inference: worker_id must be lower case letters"),
        ("router: {normalize: true}", "router.normalize: Input should be 'off', 'light' or 'full', got True"),
        ("router: {strategy: true}", "router.strategy: Input should be '"),
        ("router: {pre_buckets: [{name: a}]}", "router.pre_buckets.0.share: is required"),
        (
            "router: {pre_buckets: [{name: a, keyword: x, share: 0.1}]}",
            "router.pre_buckets.0.keyword: unknown key; allowed: name, keywords, pattern, share",
        ),
        (
            "router: {pre_buckets: [{name: A, pattern: x, share: 0.1}]}",
            "router.pre_buckets.0.name: must be 1 to 32 of a-z, 0-9, - and _, and begin with a letter or a number",
        ),
        ("deploy: {devices: gpu0}", "deploy.devices: must be auto, or cpu and cuda:N with commas between them"),
        ("core: {device: tpu}", "core.device: must be cpu, cuda or cuda:N, got 'tpu'"),
        (
            "bus: {result_ttl_ms: 5000}",
            "bus.result_ttl_ms must be more than 2 x (the longest timeout",
        ),
        ("aggregator: {timeout_ms: 700000}", "aggregator.timeout_ms must not be above router.max_timeout_ms"),
    ],
)
def test_a_bad_key_or_value_is_named_with_what_is_allowed(tmp_path: Path, text: str, line: str) -> None:
    message = refused(tmp_path, text)
    assert message.startswith(line)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("router: {max_batch_size: 8}", "router.max_batch_size: is now router.max_parallel_queries"),
        ("core: {max_seq_len: 8}", "core.max_seq_len: is now core.max_context"),
        ("core: {dtype: fp16}", "core.dtype: is now core.precision"),
        ("queue: {max_depth: 8}", "queue: is now the section bus"),
        ("kev: {queue: {max_depth: 8}}", "queue: is now the section bus"),
    ],
)
def test_a_key_of_the_first_seed_is_told_todays_name(tmp_path: Path, text: str, line: str) -> None:
    assert refused(tmp_path, text).startswith(line)


def test_every_problem_gets_its_own_line(tmp_path: Path) -> None:
    message = refused(tmp_path, "core: {precision: x, threads: -1}\nrouter: {strategy: y}")
    assert sorted(line.split(":")[0] for line in message.splitlines()) == [
        "core.precision",
        "core.threads",
        "router.strategy",
    ]


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    assert "the key precision is given twice" in refused(tmp_path, "core: {precision: fp32, precision: bf16}")
    assert "router stands both at the top and below kev" in refused(tmp_path, "router: {}\nkev: {router: {}}")


@pytest.mark.parametrize("text", ["core: [", "\tcore: 1", "- core", "text", "&a [*a]", "core: !!python/object:os.x {}"])
def test_a_file_that_holds_no_sections_is_refused(tmp_path: Path, text: str) -> None:
    message = refused(tmp_path, text)
    assert message.startswith(str(tmp_path / "kev.yaml"))
    assert "\n" not in message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent.yaml: cannot be read \(No such file or directory\)"):
        load_settings(tmp_path / "absent.yaml", environment={})
    (tmp_path / "latin.yaml").write_bytes(b"core: {system_prompt: \xe9}")
    with pytest.raises(ConfigError, match=r"latin.yaml: is not valid YAML"):
        load_settings(tmp_path / "latin.yaml", environment={})


def test_off_is_a_word_not_a_boolean(tmp_path: Path) -> None:
    assert load(tmp_path, "router: {normalize: off}").router.normalize == "off"
    assert load(tmp_path, "isolation: {shared_prefix: false}").isolation.shared_prefix is False


def test_environment_variables_are_checked_like_the_file() -> None:
    with pytest.raises(ConfigError, match=r"core\.precison: unknown key; did you mean core\.precision\?"):
        load_settings(environment={"KEV_CORE_PRECISON": "fp32"})
    with pytest.raises(ConfigError, match=r"router\.channel_pool_size: Input should be a valid integer"):
        load_settings(environment={"KEV_ROUTER_CHANNEL_POOL_SIZE": "many"})


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("KEV_ROUTR_STRATEGY", "KEV_ROUTER_STRATEGY"),
        ("KEV_ISOLATON_LEVEL", "KEV_ISOLATION_LEVEL"),
        ("KEV_AGGREGATORS_TIMEOUT_MS", "KEV_AGGREGATOR_TIMEOUT_MS"),
    ],
)
def test_a_variable_whose_section_is_misspelt_is_not_passed_over(variable: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"{variable}: unknown variable; did you mean {meant}"):
        load_settings(environment={variable: "x"})


def test_variables_of_others_are_left_alone() -> None:
    environment = {
        "KEV_HOME": "/x",
        "KEV_ROUTER": "x",
        "kev_core_precision": "x",
        "KEV_ROUTER_SERVICE_HOST": "10.0.0.1",
        "KEV_ROUTER_SERVICE_PORT_GRPC": "50051",
        "KEV_ROUTER_PORT": "tcp://10.0.0.1:50051",
        "KEV_HTTP_PORT": "tcp://10.0.0.1:8765",
        "KEV_METRIC_PORT": "tcp://10.0.0.1:9100",
        "KEV_ROUTER_PORT_50051_TCP_ADDR": "10.0.0.1",
    }
    assert load_settings(environment=environment) == Settings()
    assert load_settings(environment={"KEV_HTTP_PORT": "9000"}).http.port == 9000


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [name for name in os.environ if name.startswith("KEV_CORE_")]
    monkeypatch.setenv("KEV_CORE_THREADS", "7")
    assert load_settings().core.threads == 7


def test_shown_settings_hide_secrets_and_can_be_read_back(tmp_path: Path) -> None:
    settings = load(tmp_path, "bus: {url: 'nats://me:hush@host:4222', password: hush}\ncore: {system_prompt: 请回答}")
    text = shown(settings)
    assert "hush" not in text
    assert "请回答" in text
    assert load(tmp_path, shown(Settings())).core == Settings().core


def test_a_secret_is_not_repeated_in_an_error(tmp_path: Path) -> None:
    assert "hush" not in refused(tmp_path, "bus: {url: 'http://me:hush@host', password: [hush]}")


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().core.threads = 3  # type: ignore[misc]


def test_the_sample_file_is_valid_and_says_the_defaults(repository: Path) -> None:
    assert load_settings(repository / "kev.yaml", environment={}) == Settings()
