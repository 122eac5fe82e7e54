"""Decisions of LLMMap and AgenticMap: one model call, or one sub-agent, for each line of a file."""
