"""What the agent's duties share is made once, however many begin at the same moment."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from unstuck.agent import Agent
from unstuck.config import load
from unstuck.connections import Connections


class MeetingConnections(Connections):
    """Lets threads meet inside the making of a client: whoever comes while another makes one would make a second."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.meeting = threading.Barrier(2)

    def scripting(self) -> Any:
        with contextlib.suppress(threading.BrokenBarrierError):  # nobody else came: as it should be
            self.meeting.wait(0.2)
        return super().scripting()


def test_duties_that_begin_at_once_stand_in_one_election_under_one_name() -> None:
    settings = load(None, {}, {})
    agent = Agent(settings, connections=MeetingConnections(settings.address))
    with ThreadPoolExecutor(8) as pool:
        elections = [future.result() for future in [pool.submit(agent._elections) for _ in range(8)]]
    assert len({id(one) for one in elections}) == 1
