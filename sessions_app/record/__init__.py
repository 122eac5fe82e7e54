"""The record: how it is changed, committed, read, imported and forked."""
