"""Sub-agents: launched, delegated to, and talking to each other."""
