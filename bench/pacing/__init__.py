"""How polling intervals behave: a simulator on a virtual clock, the same on a real Redis, and plots of both."""
