"""A language model without a thought of its own: `python -m bench.model_server [FILE [WORDS_PER_SECOND]]`.

It streams words as fast as it can. With a file, it streams the words of the file, 500 in a second by default.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

WORDS_PER_SECOND = 500
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _line(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bench", "choices": [choice]}
    data = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


_BEGIN = _line({"role": "assistant", "content": ""})
_WORD = _line({"content": "word "})
_END = _line({}, "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


async def _read_words(seed: int | None, text: str | None, words_per_second: float) -> AsyncIterator[bytes]:
    if text is None:
        for _ in range(seed or 1):
            yield _WORD
        return
    for word in re.findall(r"\S+\s*", text):
        yield _line({"content": word})
        await asyncio.sleep(1 / words_per_second)


async def _serve(
    text: str | None, words_per_second: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            body = json.loads(await reader.readexactly(length))
            writer.write(_HEAD + _BEGIN)
            async for word in _read_words(body.get("seed"), text, words_per_second):
                writer.write(word)
                await writer.drain()
            writer.write(_END)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main(text: str | None, words_per_second: float) -> None:
    """Listen on any port, and print which."""
    server = await asyncio.start_server(partial(_serve, text, words_per_second), "127.0.0.1", 0, limit=2**24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def serve_model(text_file: Path | None = None, words_per_second: float = WORDS_PER_SECOND) -> Iterator[str]:
    """Run the model in a process of its own, and yield its address. With a file, it answers with its text."""
    arguments = [str(text_file), str(words_per_second)] if text_file else []
    command = [sys.executable, "-m", "bench.model_server", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


if __name__ == "__main__":
    try:
        text = Path(sys.argv[1]).read_text(encoding="utf-8") if sys.argv[1:] else None
        asyncio.run(main(text, float(sys.argv[2]) if sys.argv[2:] else WORDS_PER_SECOND))
    except KeyboardInterrupt:
        sys.exit(0)
