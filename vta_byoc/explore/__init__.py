"""Machines by models: what each machine costs, and which of them no other one beats."""
