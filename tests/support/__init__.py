"""Helpers that tests share: real servers, real processes, waiting for what must happen.

What may go wrong here is what makes a test lie: a server that is not there and is quietly skipped, a process that
outlives its test, a sleep that is too short on a busy machine. So nothing here skips, every process is accounted
for at the end of the session, and waiting means watching for a condition.
"""
