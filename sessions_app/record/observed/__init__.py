"""Reads of everybody's sessions, for staff: which ones meet a query, what they took, and how calls went over time."""
