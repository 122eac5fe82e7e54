"""OpenAI Chat Completions as decisions: what a request says, and how an answer reads."""
