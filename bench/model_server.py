"""A language model without a thought of its own: `python -m bench.model_server` streams words as fast as it can."""

from __future__ import annotations

import asyncio
import json
import sys

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _line(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bench", "choices": [choice]}
    data = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


_BEGIN = _line({"role": "assistant", "content": ""})
_WORD = _line({"content": "word "})
_END = _line({}, "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            body = json.loads(await reader.readexactly(length))
            writer.write(_HEAD + _BEGIN)
            for _ in range(int(body.get("seed") or 1)):
                writer.write(_WORD)
                await writer.drain()
            writer.write(_END)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    """Listen on any port, and print which."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, limit=2**24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
