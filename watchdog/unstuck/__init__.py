"""A sidecar for Redis job queues: it sees which jobs are stuck, proves it, and gets them moving again.

For programs of your own: `unstuck.protocol` has `Queue` and `Lease` (put jobs, take them by hand), `unstuck.worker` has
`Worker`, its options, and what handlers get; `unstuck.protocol.optimistic` has `transact`. Nothing is imported here, so
that every command starts quickly.
"""

__version__ = "0.1.0"
