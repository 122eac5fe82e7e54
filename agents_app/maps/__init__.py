"""LLMMap and AgenticMap: a run over the lines of a file, from its start to its output."""
