"""The configuration: defaults, where values come from, and what holds for a queue."""

import json
import sys
from pathlib import Path

import msgspec
import pytest

from unstuck.config import BACKENDS, OTHERS, PasswordHash, Seconds, Settings, Share, load, reference, schema
from unstuck.config.building import scalar_keys
from unstuck.config.settings import Webhook
from unstuck.errors import ConfigurationError
from unstuck.model import Mode

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"
CONTRACT_EXAMPLE = """
redis: redis://127.0.0.1:6379/0
http: {listen: "127.0.0.1:9797"}
mode: observe
sweep_interval: 2s
heartbeat_interval: 5s
lock_ttl: 30s
stuck_after: 30s
gone_after: 2s
abort_after: 20s
confirm_after: 2s
max_rescues: 3
max_attempts: 5
retry_delay: 1s
result_ttl: 1h
leader: {lease: 10s}
brake: {budget: 500, share: 50%, patience: 2m}
queues:
  - {backend: unstuck, queue: "mail", mode: reclaim}
  - {backend: rq, queue: "*", mode: reclaim, stuck_after: 90s}
  - {backend: custom, queue: orders, pending: {list: "queue:orders"}, in_flight: {list: "processing:orders"},
     lock: "lock:job:{id}", heartbeat: "heartbeat:{id}", requeue: left}
pacing: {base_interval: 200ms, max_interval: 10s, delay_threshold: 10s, backlog_threshold: 1000, cache_limit: 75%, cache_penalty_factor: 2, jitter: 20%}
webhooks: [{url: "https://hooks.example/T0/secret", format: json}]
log: {format: text, level: info}
"""


@pytest.fixture
def load_text(tmp_path):
    def load_text(text, environ=None, flags=None):
        path = tmp_path / "unstuck.yaml"
        path.write_text(text)
        return load(path, environ or {}, flags or {})

    return load_text


class TestDefaults:
    def test_without_anything_the_agent_observes_with_the_documented_thresholds(self):
        settings = load()
        assert settings.mode is Mode.OBSERVE
        assert (settings.sweep_interval, settings.heartbeat_interval, settings.stuck_after) == (2, 5, 30)
        assert (settings.gone_after, settings.abort_after, settings.confirm_after, settings.lock_ttl) == (2, 20, 2, 30)
        assert (settings.brake.budget, settings.brake.share, settings.brake.patience) == (500, 0.5, 120)
        assert (settings.dead_max, settings.dead_ttl, settings.leader.lease) == (10_000, 30 * 86_400, 10)
        assert (settings.deadline.action, settings.deadline.grace) == ("alert", 0)
        assert str(settings.redis) == "redis://127.0.0.1:6379/0"
        assert str(settings.http.listen) == "127.0.0.1:9797"

    def test_the_example_of_the_contract_spells_out_the_defaults(self, load_text):
        settings = load_text(CONTRACT_EXAMPLE)
        assert msgspec.structs.replace(settings, queues=(), webhooks=(), places={}) == load()

    @pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "brake:\nqueues:\nstuck_after:\n"])
    def test_an_empty_file_or_an_empty_key_leaves_the_defaults(self, load_text, text):
        assert msgspec.structs.replace(load_text(text), places={}) == load()


class TestSources:
    def test_a_flag_beats_the_environment_and_that_beats_the_file(self, load_text):
        text = "stuck_after: 40s\nbrake: {budget: 1}\nmax_rescues: 1\n"
        environ = {"UNSTUCK_STUCK_AFTER": "50s", "UNSTUCK_BRAKE_BUDGET": "2"}
        settings = load_text(text, environ, {"stuck_after": "60s", "brake.budget": None})
        assert (settings.stuck_after, settings.brake.budget, settings.max_rescues) == (60, 2, 1)
        assert settings.place("stuck_after") == "flag --stuck-after"
        assert settings.place("brake.budget") == "environment variable UNSTUCK_BRAKE_BUDGET"
        assert settings.place("max_rescues").endswith("unstuck.yaml:3:1")
        assert settings.place("mode") == "default"

    def test_every_scalar_key_can_come_from_the_environment_and_from_a_flag(self):
        plain = {setting.key: setting for setting in reference()}
        for key, setting in plain.items():
            if setting.default:
                assert load(None, {setting.variable: setting.default}).place(key) == (
                    f"environment variable {setting.variable}"
                )
                assert load(None, {}, {key: setting.default}).place(key) == f"flag {setting.flag}"

    def test_the_file_may_be_named_by_the_environment(self, tmp_path):
        (tmp_path / "a.yaml").write_text("max_rescues: 7")
        assert load(None, {"UNSTUCK_CONFIG": str(tmp_path / "a.yaml")}).max_rescues == 7

    def test_an_empty_variable_counts_as_not_set(self):
        assert load(None, {"UNSTUCK_MODE": "", "UNSTUCK_CONFIG": "", "UNSTUCK_REDIS": ""}).mode is Mode.OBSERVE

    def test_what_kubernetes_sets_for_a_service_of_our_name_is_left_alone(self):
        environ = {
            "UNSTUCK_PORT": "tcp://10.0.0.1:9797",
            "UNSTUCK_SERVICE_HOST": "10.0.0.1",
            "UNSTUCK_SERVICE_PORT_HTTP": "9797",
            "UNSTUCK_PORT_9797_TCP_ADDR": "10.0.0.1",
        }
        assert load(None, environ).notes == ()

    def test_a_variable_like_nothing_we_know_is_told_of_and_one_like_a_setting_is_refused(self):
        (note,) = load(None, {"UNSTUCK_XYZZY": "1"}).notes
        assert "UNSTUCK_XYZZY" in note
        with pytest.raises(ConfigurationError, match="did you mean `UNSTUCK_STUCK_AFTER`"):
            load(None, {"UNSTUCK_STUCKAFTER": "60s"})

    def test_a_list_cannot_come_from_the_environment(self):
        with pytest.raises(ConfigurationError, match="UNSTUCK_QUEUES: a list cannot"):
            load(None, {"UNSTUCK_QUEUES": "[]"})


class TestSecrets:
    def test_the_password_comes_from_the_environment_before_the_file_before_the_address(self, tmp_path):
        secret = tmp_path / "secret"
        secret.write_text("from-file\n")
        base = {"UNSTUCK_REDIS": "redis://me:from-url@h:1/2"}
        assert load(None, base).address.password == "from-url"
        base["UNSTUCK_REDIS_PASSWORD_FILE"] = str(secret)
        assert load(None, base).address.password == "from-file"
        base["UNSTUCK_REDIS_PASSWORD"] = "from-env"
        address = load(None, base).address
        assert (address.password, address.username) == ("from-env", "me")
        assert str(address) == "redis://me:***@h:1/2"

    def test_no_form_of_showing_settings_shows_a_secret(self, load_text):
        text = (
            CONTRACT_EXAMPLE.replace("redis: redis://", "redis_username: u\nredis: redis://x:hush1@")
            + "deadline: {grace: 1s}\n"
        )
        text = text.replace('listen: "127.0.0.1:9797"', f'basic_auth: {{bob: "{PasswordHash.of("hush2").text()}"}}')
        settings = load_text(text, {"UNSTUCK_REDIS_PASSWORD": "hush3"})
        shown = repr(settings) + str(settings) + json.dumps(settings.as_dict()) + settings.digest
        assert not any(word in shown for word in ("hush1", "hush2", "hush3", "T0/secret", "scrypt"))
        with pytest.raises(TypeError):
            msgspec.json.encode(settings)

    def test_a_hashed_password_matches_its_password_only(self):
        made = PasswordHash.parse(PasswordHash.of("right").text())
        assert made.matches("right")
        assert not made.matches("wrong")

    @pytest.mark.parametrize("text", ["hunter2", "", "scrypt$1$1$1$$", "scrypt$16777216$8$1$AAAA$AAAA", "$2b$10$abc"])
    def test_a_password_that_is_not_hashed_is_refused_and_not_shown(self, load_text, text):
        with pytest.raises(ConfigurationError) as caught:
            load_text(f'http: {{basic_auth: {{bob: "{text}"}}}}')
        assert "python -m unstuck.config.passwords" in str(caught.value)
        assert not text or text not in str(caught.value)


class TestDigest:
    def test_agents_that_act_alike_have_the_same_digest_wherever_their_settings_come_from(self, load_text):
        text = load_text("stuck_after: 40s\nlog: {level: debug}\nredis: redis://:pw@elsewhere\n")
        assert text.digest == load(None, {"UNSTUCK_STUCK_AFTER": "40s", "UNSTUCK_REDIS_PASSWORD": "x"}).digest
        assert text.digest != load().digest

    def test_a_different_entry_of_queues_changes_the_digest(self, load_text):
        first = load_text("queues: [{backend: rq, mode: reclaim}]").digest
        assert first != load_text("queues: [{backend: rq, mode: observe}]").digest
        assert first == load_text("\n\nqueues:\n  - {backend: rq, mode: reclaim}").digest


class TestQueues:
    def test_the_first_entry_that_matches_holds(self, load_text):
        settings = load_text("""
stuck_after: 40s
queues:
  - {backend: rq, queue: "mail-*", mode: reclaim, max_rescues: 1}
  - {backend: rq, mode: observe, brake: {budget: 5}, pacing: {jitter: 0%}}
""")
        mail = settings.for_queue("rq", "mail-out")
        assert (mail.mode, mail.max_rescues, mail.stuck_after, mail.brake.budget) == (Mode.RECLAIM, 1, 40, 500)
        other = settings.for_queue("rq", "other")
        assert (other.mode, other.max_rescues, other.brake.budget, other.brake.share) == (Mode.OBSERVE, 3, 5, 0.5)
        assert other.pacing.jitter == 0
        assert settings.match("celery", "mail-out") is None
        assert [rule.exact for rule in settings.queues] == [False, False]

    def test_a_foreign_queue_that_no_entry_names_is_only_observed(self, load_text):
        settings = load_text("mode: reclaim\nqueues: [{backend: rq, queue: listed}]")
        assert settings.for_queue("unstuck", "any").mode is Mode.RECLAIM
        assert settings.for_queue("rq", "listed").mode is Mode.RECLAIM
        assert settings.for_queue("rq", "unlisted").mode is Mode.OBSERVE
        assert settings.for_queue("bullmq", "listed").mode is Mode.OBSERVE

    def test_a_threshold_below_the_adapters_own_is_raised_to_it(self, load_text):
        settings = load_text("queues: [{backend: rq, queue: slow, stuck_after: 5m}]")
        assert settings.for_queue("rq", "slow", least_stuck_after=90).stuck_after == 300
        raised = settings.for_queue("rq", "other", least_stuck_after=90).stuck_after
        assert raised == 90
        assert isinstance(raised, Seconds)

    def test_names_are_compared_with_their_case(self, load_text):
        assert load_text("queues: [{backend: rq, queue: Mail}]").match("rq", "mail") is None

    def test_a_custom_queue_fills_in_its_patterns(self, load_text):
        (rule,) = load_text("""
queues:
  - {backend: custom, queue: orders, pending: {zset: "{queue}:todo"}, in_flight: {set: "{tag}:busy"},
     lock: "{queue}:lock:{id}", requeue: right}
""").queues
        layout = rule.layout
        assert (layout.pending.kind, layout.pending.key) == ("zset", "orders:todo")
        assert (layout.in_flight.kind, layout.in_flight.key) == ("set", "{tag}:busy")
        assert (layout.lock_key("7"), layout.heartbeat_key("7"), layout.requeue) == ("orders:lock:7", None, "right")
        assert rule.exact


class TestReference:
    def test_every_setting_stands_in_the_documentation_with_all_its_names_and_its_default(self):
        rows = [[cell.strip() for cell in line.split("|")] for line in DOCS.read_text().splitlines()]
        documented = {row[1]: row for row in rows if len(row) == 9}
        for setting in reference():
            row = documented.pop(f"`{setting.key}`")
            default = f"`{setting.default}`" if setting.default else "none"
            per_queue = "yes" if setting.per_queue else ""
            assert row[2:8] == [
                f"`{setting.variable}`",
                f"`{setting.flag}`",
                default,
                setting.unit,
                per_queue,
                setting.meaning,
            ]
        assert [key for key in documented if key.startswith("`")] == [], "documented, but no setting"

    def test_the_documentation_names_every_other_variable_section_list_and_backend(self):
        text = DOCS.read_text()
        for word in (*OTHERS, *BACKENDS, "http.basic_auth", "pending", "in_flight", "lock", "heartbeat", "requeue"):
            assert f"`{word}`" in text, word

    def test_every_key_of_a_webhook_stands_in_the_documentation_with_its_default(self):
        text = DOCS.read_text()
        for field in msgspec.structs.fields(Webhook):
            assert f"| `{field.name}` |" in text
            if isinstance(field.default, Seconds):
                assert f"| `{field.name}` | `{field.default}` |" in text

    def test_no_two_settings_share_a_variable(self):
        names = [setting.variable for setting in reference()] + list(OTHERS)
        assert len(names) == len(set(names))

    def test_every_setting_has_a_meaning_in_the_schema(self):
        def walk(node, path):
            for name, entry in node.get("properties", {}).items():
                if entry is False:
                    continue
                assert entry.get("description"), f"{path}.{name}"
                walk(entry, f"{path}.{name}")

        made = schema()
        walk(made, "")
        json.dumps(made)
        assert made["properties"]["stuck_after"]["default"] == "30s"
        assert made["properties"]["brake"]["properties"]["share"]["default"] == "50%"
        assert made["properties"]["queues"]["items"]["properties"]["brake"]["properties"]["budget"]["minimum"] == 1
        assert "x-least" in made["properties"]["sweep_interval"]
        assert scalar_keys().keys() >= {"mode", "pacing.jitter", "http.tls.client_ca"}


class TestUnits:
    @pytest.mark.parametrize(
        ("text", "seconds", "shown"),
        [
            ("200ms", 0.2, "200ms"),
            ("5s", 5, "5s"),
            ("0s", 0, "0s"),
            ("1.5s", 1.5, "1.5s"),
            ("90s", 90, "90s"),
            ("120s", 120, "2m"),
            ("1h30m", 5400, "90m"),
            ("30d", 2_592_000, "30d"),
            (" 2 M ", 120, "2m"),
        ],
    )
    def test_a_duration_is_read_and_shown(self, text, seconds, shown):
        made = Seconds.parse(text)
        assert (made, str(made), made.ms) == (seconds, shown, round(seconds * 1000))
        assert Seconds.parse(shown) == made

    def test_a_share_is_a_part_of_one(self):
        assert (Share.parse("12.5%"), str(Share.parse("12.5%"))) == (0.125, "12.5%")

    @pytest.mark.parametrize(("text", "limit"), [("75%", 750), ("512b", 512), ("1kb", 1024), ("1.5MiB", 1_572_864)])
    def test_a_memory_limit_is_a_share_of_maxmemory_or_a_size(self, text, limit):
        assert load(None, {"UNSTUCK_PACING_CACHE_LIMIT": text}).pacing.cache_limit.of(1000) == limit

    def test_a_share_of_no_maxmemory_is_no_limit(self):
        assert Settings().pacing.cache_limit.of(0) is None

    def test_an_address_to_listen_on_may_leave_out_the_host(self):
        listen = load(None, {"UNSTUCK_HTTP_LISTEN": ":0"}).http.listen
        assert (listen.host, listen.port) == ("0.0.0.0", 0)
        assert load(None, {"UNSTUCK_HTTP_LISTEN": "[::1]:9797"}).http.listen.host == "::1"


def test_reading_the_configuration_does_not_import_redis():
    import subprocess

    code = "import sys, unstuck.config, unstuck.connections, unstuck.cli; sys.exit('redis' in sys.modules)"
    env = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0
