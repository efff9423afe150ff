"""The MCP server: REM's tools, resources and prompts for any MCP client."""
