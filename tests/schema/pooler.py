"""A pooler that keeps a server connection for one transaction only, and takes another next time.

It speaks just enough of PostgreSQL's protocol 3 to pass messages on: who asks for a transaction
gets the server connection that has been idle longest, so what a session had set is gone.
Startup options are dropped, as poolers do.
"""

from __future__ import annotations

import asyncio
import struct
import tempfile
import threading
from pathlib import Path
from typing import TypeAlias

Backend: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
READY = b"Z"
FLUSH = b"H"
ENDS_REQUEST = (b"Q", b"S")  # each is answered by one ReadyForQuery


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    body = await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)
    return head[:1], head + body


class TransactionPooler:
    """Serves on a socket of its own, in a thread of its own.

    Attributes:
        home: The socket's folder, for `host=`.
        handed_out: How often a server connection was handed out.
    """

    def __init__(self, server_home: str, size: int = 3) -> None:
        self.home = tempfile.mkdtemp(prefix="pooler-")
        self.handed_out = 0
        self._server = server_home
        self._size = size
        self._idle: dict[bytes, asyncio.Queue[Backend]] = {}
        self._greetings: dict[bytes, bytes] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        socket = str(Path(self.home) / ".s.PGSQL.5432")
        start = asyncio.start_unix_server(self._client, socket)
        self._listener = asyncio.run_coroutine_threadsafe(start, self._loop).result()

    def close(self) -> None:
        async def close() -> None:
            self._listener.close()
            for backends in self._idle.values():
                while not backends.empty():
                    backends.get_nowait()[1].close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _connect(self, startup: bytes) -> None:
        reader, writer = await asyncio.open_unix_connection(f"{self._server}/.s.PGSQL.5432")
        writer.write(startup)
        greeting = b""
        kind = b""
        while kind != READY:
            kind, message = await read_message(reader)
            greeting += message
        self._greetings[startup] = greeting
        self._idle.setdefault(startup, asyncio.Queue()).put_nowait((reader, writer))

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = struct.unpack("!I", await reader.readexactly(4))[0]
        words = (await reader.readexactly(length - 4))[4:].split(b"\0")
        given = dict(zip(words[::2], words[1::2], strict=False))
        kept = b"".join(name + b"\0" + given[name] + b"\0" for name in (b"user", b"database"))
        startup = struct.pack("!II", len(kept) + 9, 3 << 16) + kept + b"\0"
        if startup not in self._idle:
            for _ in range(self._size):
                await self._connect(startup)
        writer.write(self._greetings[startup])
        await _Session(self, startup, reader, writer).run()

    async def take(self, startup: bytes) -> Backend:
        self.handed_out += 1
        return await self._idle[startup].get()

    def give(self, startup: bytes, backend: Backend) -> None:
        self._idle[startup].put_nowait(backend)


class _Session:
    def __init__(
        self,
        pooler: TransactionPooler,
        startup: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.pooler, self.startup, self.reader, self.writer = pooler, startup, reader, writer
        self.backend: Backend | None = None
        self.asked = 0
        self.within_request = False

    async def run(self) -> None:
        try:
            while True:
                kind, message = await read_message(self.reader)
                if kind == b"X":
                    return
                if self.backend is None:
                    self.backend = await self.pooler.take(self.startup)
                    self.answers = asyncio.ensure_future(self._answers(self.backend))
                if kind != FLUSH:
                    self.within_request = kind not in ENDS_REQUEST
                self.asked += kind in ENDS_REQUEST
                self.backend[1].write(message)
        except asyncio.IncompleteReadError:
            return
        finally:
            self.writer.close()

    async def _answers(self, backend: Backend) -> None:
        while True:
            kind, message = await read_message(backend[0])
            if kind == READY:
                self.asked -= 1
            idle = kind == READY and message[5:] == b"I"
            if idle and not self.asked and not self.within_request:
                self.backend = None
                self.pooler.give(self.startup, backend)
                self.writer.write(message)
                return
            self.writer.write(message)
