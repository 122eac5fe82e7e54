"""Tools of attached MCP servers."""
