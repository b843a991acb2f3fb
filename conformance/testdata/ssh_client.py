"""An SSH client made of a library, for tests: paramiko or asyncssh.

usage: ssh_client.py LIBRARY HOST PORT USER KEY forward BIND BINDPORT TARGET TARGETPORT
       ssh_client.py LIBRARY HOST PORT USER KEY exec COMMAND
       ssh_client.py LIBRARY HOST PORT USER KEY direct
       ssh_client.py asyncssh HOST PORT USER KEY flood BIND TARGET TARGETPORT

What happens is printed, one line each. The word cancel on stdin takes the forward back.
"""
import asyncio
import socket
import sys
import threading
import warnings

warnings.filterwarnings("ignore")


def say(*words):
    print(*words, flush=True)


def pump(source, sink, end):
    try:
        while True:
            data = source.recv(32768)
            if not data:
                break
            sink.sendall(data)
    except Exception:
        pass
    end()


def with_paramiko(host, port, user, key, mode, args):
    import paramiko

    transport = paramiko.Transport((host, port))
    transport.start_client(timeout=20)
    transport.auth_publickey(user, paramiko.Ed25519Key.from_private_key_file(key))
    say("banner", repr(transport.get_banner()))
    if mode == "exec":
        channel = transport.open_session()
        channel.exec_command(args[0])
        out = channel.makefile().read()
        sys.stdout.buffer.write(out)
        sys.stdout.buffer.write(channel.makefile_stderr().read())
        sys.stdout.flush()
        sys.exit(channel.recv_exit_status())
    if mode == "direct":
        try:
            transport.open_channel("direct-tcpip", ("127.0.0.1", 1), ("127.0.0.1", 2))
        except paramiko.ChannelException as e:
            say("refused", e.code, e.text)
        return

    bind, bind_port, target = args[0], int(args[1]), (args[2], int(args[3]))

    def serve(channel, origin, server):
        def run():
            try:
                local = socket.create_connection(target)
            except OSError:
                channel.close()
                return
            threading.Thread(target=pump, args=(channel, local, lambda: None), daemon=True).start()
            pump(local, channel, channel.close)
            local.close()

        threading.Thread(target=run, daemon=True).start()

    # paramiko sets it itself only after the reply to the request, and refuses channels until then.
    transport._tcp_handler = serve
    try:
        say("forwarded", transport.request_port_forward(bind, bind_port, serve))
    except paramiko.SSHException as e:
        say("refused", e)

    def commands():
        for line in sys.stdin:
            if line.strip() == "cancel":
                transport.cancel_port_forward(bind, bind_port)
                say("canceled")

    threading.Thread(target=commands, daemon=True).start()
    transport.join()
    say("closed")
    sys.exit(255)


async def with_asyncssh(host, port, user, key, mode, args):
    import asyncssh

    class Client(asyncssh.SSHClient):
        def auth_banner_received(self, message, lang):
            say("banner", repr(message))

        def connection_lost(self, exc):
            say("lost", repr(exc))

    connection, _ = await asyncssh.create_connection(
        Client, host, port, username=user, client_keys=[key], known_hosts=None, config=[],
        agent_path=None)
    if mode == "exec":
        done = await connection.run(args[0], encoding=None)
        sys.stdout.buffer.write(done.stdout + done.stderr)
        sys.stdout.flush()
        sys.exit(done.exit_status)
    if mode == "direct":
        try:
            await connection.open_connection("127.0.0.1", 1)
        except asyncssh.ChannelOpenError as e:
            say("refused", e.code, e.reason)
        return
    if mode == "flood":
        await connection.forward_remote_port(args[0], 80, args[1], int(args[2]))
        process = await connection.create_process(
            term_type="xterm", term_size=(80, 24), env={"V%d" % n: "x" for n in range(1000)})
        for n in range(200):
            process.change_terminal_size(40 + n % 80, 24)
            process.send_signal("USR1")
        say("flooded")
        await connection.wait_closed()
        return
    try:
        listener = await connection.forward_remote_port(args[0], int(args[1]), args[2], int(args[3]))
        say("forwarded", listener.get_port())
    except asyncssh.ChannelListenError as e:
        say("refused", e)
        listener = None

    async def commands():
        loop = asyncio.get_running_loop()
        while True:
            line = await loop.run_in_executor(None, sys.stdin.readline)
            if not line:
                return
            if line.strip() == "cancel":
                listener.close()
                await listener.wait_closed()
                say("canceled")

    waiting = asyncio.ensure_future(commands())
    await connection.wait_closed()
    waiting.cancel()
    say("closed")
    sys.stdout.flush()
    import os
    os._exit(255)


library, host, port, user, key, mode = sys.argv[1:7]
if library == "paramiko":
    with_paramiko(host, int(port), user, key, mode, sys.argv[7:])
else:
    asyncio.run(with_asyncssh(host, int(port), user, key, mode, sys.argv[7:]))
