"""Each script's header, what its callers send, and docs/protocol.md say the same."""

import re
from pathlib import Path

import pytest

from support.own_queue import SCENARIOS, WORKER, OwnQueue
from unstuck.model import Authority, Condemned, Lock, Reason
from unstuck.protocol import BatchCache, JobCache, Queue, Terms, keys, scripts
from unstuck.queue import Limits
from unstuck.queues.unstuck import UnstuckAdapter

FOLDER = Path(scripts.__file__).parent / "lua"
DOCS = (Path(scripts.__file__).parents[3] / "docs" / "protocol.md").read_text()
# How many arguments repeat behind the fixed ones; 0: any number may follow.
REPEATING = {
    "heartbeat_jobs": 3,
    "complete_and_claim": 6,
    "reclaim_jobs": 9,
    "register_worker": 2,
    "write_cache": 2,
    "publish_pacing": 2,
    "leave_worker": 0,
    "purge_workers": 0,
}


def header(name: str) -> str:
    lines = (FOLDER / f"{name}.lua").read_text().splitlines()
    return "\n".join(line for line in lines[1:] if line.startswith("--") and not line.startswith("--@"))


def documented(name: str) -> int:
    """How many fixed arguments the header names."""
    plain = re.sub(r"\([^)]*\)", "", header(name))
    part = re.search(r"ARGV(.*?)(?:\bthen\b|-- returns)", plain, re.DOTALL)
    assert part, f"{name}.lua has no ARGV line"
    numbers = [int(found) for found in re.findall(r"(?:^|\s)(\d+) [a-z]", part[1])]
    assert numbers == list(range(1, len(numbers) + 1)), f"{name}.lua numbers its arguments {numbers}"
    return len(numbers)


class Eavesdropper:
    """A client that writes down what is sent, and passes it on."""

    def __init__(self, client):
        self._client = client
        self.sent: list[tuple] = []

    def execute_command(self, *args):
        self.sent.append(args)
        return self._client.execute_command(*args)

    def pipeline(self, **options):
        return _Pipe(self, self._client.pipeline(**options))

    def __getattr__(self, name):
        return getattr(self._client, name)


class _Pipe:
    def __init__(self, ear, pipe):
        self._ear, self._pipe = ear, pipe

    def execute_command(self, *args):
        self._ear.sent.append(args)
        return self._pipe.execute_command(*args)

    def __getattr__(self, name):
        return getattr(self._pipe, name)


def everything_a_program_calls(ear):
    """Use each method of the client and of the adapter once."""
    queue = Queue(ear, "mail")
    queue.enqueue({}, id="a")
    queue.enqueue_many([1, 2])
    lease = queue.claim(WORKER, "0")
    queue.register(WORKER, control=True, record={"host": "h"})
    queue.heartbeat(WORKER, [lease])
    queue.report_progress(lease.id, lease.token, "x")
    _, second = queue.complete_and_claim(lease, Terms())
    queue.fail(second, "no", permanent=True)
    third = queue.claim(WORKER, "0")
    queue.release(third, "test")
    queue.cancel(third.id)
    queue.retry_dead(third.id)
    queue.drop_dead(second.id)
    queue.promote()
    fourth = queue.claim(WORKER, "0")
    JobCache(queue).write(fourth.id, fourth.token, {"step": 1})
    BatchCache(queue).get_or_compute("report", lambda: 1)
    BatchCache(queue).invalidate()
    adapter = UnstuckAdapter(ear, ear)
    adapter.look({"mail": Limits()})
    one = Condemned(fourth.id, WORKER, fourth.token, "", Lock.HELD, Reason.WORKER_GONE, 1.0)
    adapter.reclaim("mail", [one], Limits(), Authority("agent", 1, "run", "repl"))
    queue.complete(fourth)
    queue.leave(WORKER, ["0"])


def test_header_and_caller_agree_on_the_number_of_arguments(redis_client):
    ear = Eavesdropper(redis_client)
    everything_a_program_calls(ear)
    by_digest = {scripts.script(name).sha: name for name in scripts.names()}
    called = set()
    for _, digest, count, key, *args in (sent for sent in ear.sent if sent[0] == "EVALSHA"):
        name = by_digest[digest]
        called.add(name)
        assert (count, key) == (1, keys.meta("mail"))
        more = len(args) - documented(name)
        assert more >= 0 if name in REPEATING else more == 0, f"{name} was called with {len(args)} arguments"
        assert not REPEATING.get(name) or more % REPEATING[name] == 0, f"{name} was called with {len(args)} arguments"
    # These are called by duties of the agent, which have tests of their own.
    duties = {"elect_leader", "resign_leader", "publish_pacing", "purge_workers", "restore_job"}
    assert set(scripts.names()) - called == duties


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_scenarios_of_the_other_tests_agree_with_the_header(redis_client, name):
    script, args = SCENARIOS[name](OwnQueue(redis_client))
    more = len(args) - documented(script)
    assert more >= 0 if script in REPEATING else more == 0


@pytest.mark.parametrize("name", scripts.names())
def test_a_script_says_what_it_takes_and_gives_and_reads_no_argument_beyond(name):
    text = header(name)
    assert "-- KEYS 1 unstuck:" in text
    assert "-- returns" in text
    read = [int(found) for found in re.findall(r"ARGV\[(\d+)\]", (FOLDER / f"{name}.lua").read_text())]
    fixed = documented(name)
    assert all(number <= fixed for number in read), f"{name}.lua reads ARGV[{max(read)}] of {fixed}"


@pytest.mark.parametrize("name", scripts.names())
def test_the_documentation_describes_each_script_with_its_arguments(name):
    assert f"`{name}`" in DOCS
    assert DOCS.count(f"\n### {name}\n") == 1
    section = DOCS.split(f"### {name}\n", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
    numbers = [int(found) for found in re.findall(r"(?:ARGV:|·)\s+(\d+) ", section)]
    assert len(numbers) == documented(name), f"docs/protocol.md names {len(numbers)} arguments of {name}"


def test_the_documentation_names_each_key_include_error_code_and_structure():
    for part in [*keys.STRUCTURES, "held:<worker>", "worker:<worker>", "control:<worker>"]:
        assert f"| `{part}` |" in DOCS, part
    for part in ("job:<id>", "lock:<id>", "cache:<id>", "batch:<key>", "invalidate", "rescues"):
        assert f"`{part}`" in DOCS, part
    assert f"`{keys.QUEUES}`" in DOCS
    assert f"`{keys.LEADER}`" in DOCS
    for include in (FOLDER / "include").glob("*.lua"):
        assert f"| `{include.stem}` |" in DOCS, include.stem
    codes = {code for path in FOLDER.rglob("*.lua") for code in re.findall(r"UNSTUCK[A-Z]+", path.read_text())}
    for code in codes:
        assert f"`{code}" in DOCS, code


def test_every_key_that_a_script_builds_is_in_the_one_room_of_keys():
    known = {part.split(":")[0] for part in keys.STRUCTURES}
    known |= {"held", "job", "lock", "worker", "control", "cache", "batch", "invalidate"}
    for path in FOLDER.rglob("*.lua"):
        for part in re.findall(r"stem \.\. '([a-z]+):?'", path.read_text()):
            assert part in known, f"{path.name} builds {part}"


@pytest.mark.parametrize("name", scripts.names())
def test_a_script_loads_is_whole_and_stays_within_one_hash_tag(redis_client, name):
    script = scripts.script(name)
    assert "--@include" not in script.text
    assert redis_client.script_load(script.text) == script.sha
