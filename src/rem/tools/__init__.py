"""The tools of agents and MCP clients: functions that search and change the caller's memory."""
