"""One adapter per queue system; the contract stands in `unstuck.queue`."""
