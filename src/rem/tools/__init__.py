"""What agents, MCP clients and the HTTP API can do with the memory: one function a tool."""
