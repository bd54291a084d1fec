"""A proxy between a client and a server that drops or doubles one event of a feed."""

import json
import socket
import struct
import threading

# The server's messages of the handshake end with a zero byte each.
HANDSHAKE_MESSAGES = 3
HEADER = struct.Struct("<QI")
PARTIAL = 3


class FeedProxy:
    """Listens on `port`. `alter` takes the first batch with events and returns another one."""

    def __init__(self, server_port, alter):
        self.server_port = server_port
        self.alter = alter
        self.altered = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.sockets = [self.listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        for one in self.sockets:
            one.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.server_port))
            self.sockets += [client, server]
            for pump in [(self._queries, client, server), (self._responses, server, client)]:
                threading.Thread(target=pump[0], args=pump[1:], daemon=True).start()

    def _queries(self, client, server):
        with_end(lambda: copy(client, server), server)

    def _responses(self, server, client):
        with_end(lambda: self._frames(server.makefile("rb"), client), client)

    def _frames(self, source, client):
        for _ in range(HANDSHAKE_MESSAGES):
            message = b""
            while not message.endswith(b"\0"):
                message += source.read(1) or raise_end()
            client.sendall(message)
        while header := source.read(HEADER.size):
            token, length = HEADER.unpack(header)
            body = self._body(source.read(length))
            client.sendall(HEADER.pack(token, len(body)) + body)

    def _body(self, body):
        response = json.loads(body)
        rows = response["r"]
        is_batch = response["t"] == PARTIAL and rows and isinstance(rows[0], dict) and "new_val" in rows[0]
        # Never released: one batch is altered.
        if not is_batch or not self.altered.acquire(blocking=False):
            return body
        response["r"] = self.alter(rows)
        return json.dumps({"t": response.pop("t"), **response}, separators=(",", ":")).encode()


def raise_end():
    raise OSError("the server closed the connection")


def copy(source, target):
    while data := source.recv(65536):
        target.sendall(data)


def with_end(work, target):
    """Works until one side closes, then closes `target`."""
    try:
        work()
    except OSError:
        pass
    target.close()
