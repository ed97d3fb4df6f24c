"""For processes under libfaketime: its clock_nanosleep refuses the absolute times of time.sleep with EINVAL, so sleep in select."""

import select
import time


def _sleep(seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        select.select([], [], [], left)


time.sleep = _sleep
