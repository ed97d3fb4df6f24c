"""`unstuck top`: queues, stuck jobs and rescues at a terminal, live; from a running agent, or straight from Redis.

sources (agent or Redis) ─► Seen ─► screen (lines for a terminal of this size) ─► live (keys, time, the terminal)
"""
