"""bin/demo: servers, simulator, sample data, workers and web on this machine."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import django

from wecom_ops.local import sample
from wecom_ops.local.child import Child
from wecom_ops.local.files import LocalStackError, free_port, port_is_free, tail
from wecom_ops.local.instance import ROOT, Instance, open_instance
from wecom_ops.local.servers import local_servers
from wecom_ops.local.stopping import Stopped, raise_on_signals

DEFAULT_PORT = 8000
ADMIN = "admin"
#: name of the gateway that stands for the simulator, whatever its port
SIMULATED = "演示：模拟网关"
MANAGE = (sys.executable, str(ROOT / "manage.py"))
_READY_SECONDS = 60.0


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bin/demo", description="Runs the whole console on this machine."
    )
    parser.add_argument("--port", type=int, help=f"web port (default {DEFAULT_PORT})")
    parser.add_argument("--once", action="store_true", help="one sample job to its end, then stop")
    parser.add_argument("--csv", type=Path, help="with --once: the file to send instead")
    parsed = parser.parse_args(argv)
    if parsed.csv is not None and not parsed.once:
        parser.error("--csv needs --once")
    if parsed.csv is not None and not parsed.csv.is_file():
        parser.error(f"there is no file {parsed.csv}")
    return parsed


def choose_port(asked: int | None, *, once: bool) -> int:
    if asked is not None:
        if not 1 <= asked <= 65535 or not port_is_free(asked):
            print(
                f"Port {asked} on 127.0.0.1 is taken or not allowed; name another by --port.",
                file=sys.stderr,
            )
            raise SystemExit(2)
        return asked
    if once:  # nobody opens a page of it; its health check says when the stack is up
        return free_port()
    if port_is_free(DEFAULT_PORT):
        return DEFAULT_PORT
    port = free_port()
    print(f"Port {DEFAULT_PORT} is taken; using {port}.")
    return port


def environment(instance: Instance, urls: dict[str, str], port: int) -> dict[str, str]:
    """What the stack runs with; what the person has set in their own environment stays."""
    return {
        "DEBUG": "off",
        "HTTPS": "off",
        "SECRET_KEY": instance.secret("secret_key"),
        "ALLOWED_HOSTS": "127.0.0.1,localhost",
        "STATIC_ROOT": str(instance.home / "static"),
        "ENVIRONMENT_LABEL": "演示环境",
        "DJANGO_SETTINGS_MODULE": "wecom_ops.settings",
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
        **os.environ,
        **urls,
        "PORT": str(port),
    }


def try_manage(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MANAGE, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def manage(*arguments: str, log: Path) -> str:
    """Runs one command of ours that has to succeed; its standard output."""
    done = try_manage(*arguments)
    with log.open("a", encoding="utf-8") as handle:
        handle.write(f"$ {' '.join(arguments)}\n{done.stdout}{done.stderr}")
    if done.returncode:
        raise LocalStackError(
            f"manage.py {arguments[0]} failed (exit code {done.returncode}):\n"
            f"{done.stdout}{done.stderr}"
        )
    return done.stdout


def ask(port: int, method: str, path: str, body: object = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read(4096).decode(errors="replace")
    finally:
        connection.close()


def await_answer(child: Child, port: int, path: str, log: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    last = "no answer"
    while time.monotonic() < deadline:
        if not child.running:
            raise LocalStackError(f"The {child.name} did not start:\n{tail(log)}")
        try:
            status, body = ask(port, "GET", path)
        except (OSError, http.client.HTTPException) as error:
            last = str(error)
        else:
            if status == http.HTTPStatus.OK:
                return
            last = f"{status}: {body}"
        time.sleep(0.2)
    raise LocalStackError(f"The {child.name} is not ready ({last}):\n{tail(log)}")


def make_admin(instance: Instance) -> str:
    """The administrator's password, or what to say instead of it."""
    from django.contrib.auth import get_user_model

    password = instance.secret("admin_password")
    users = get_user_model().objects
    admin = users.filter(username=ADMIN).first()
    if admin is None:
        users.create_superuser(ADMIN, "", password)
    elif not admin.check_password(password):
        return "(as it was set before)"
    return password


def load_accounts(instance: Instance, rows: list[sample.Row], gateway_url: str) -> list[sample.Row]:
    """Loads the accounts at this run's simulator; what load_accounts says of each gateway.

    The database may be a kept one and the simulator's port another: its gateway then moves along,
    since the same accounts at a second gateway could not be told apart.
    """
    from batches.models import Gateway

    mine = Gateway.objects.filter(name=SIMULATED)
    mine.exclude(base_url=gateway_url).update(base_url=gateway_url)
    target = instance.home / "accounts.csv"
    sample.write_rows(rows, target, gateway_url)
    told = manage("load_accounts", str(target), "--json", log=instance.logs / "setup.log")
    Gateway.objects.filter(base_url=gateway_url).update(name=SIMULATED)
    return sample.read_told(told)


@contextlib.contextmanager
def running(name: str, command: Sequence[str], log: Path, patience: float) -> Iterator[Child]:
    with log.open("ab") as handle:
        child = Child(name, command, env=os.environ, cwd=ROOT, output=handle)
    try:
        yield child
    finally:
        child.stop(((signal.SIGTERM, patience),))


def run(options: argparse.Namespace, instance: Instance) -> int:
    port = choose_port(options.port, once=options.once)
    print("Starting the servers …", flush=True)
    with contextlib.ExitStack() as stack:
        urls = stack.enter_context(local_servers(instance.home, durable=instance.kept))
        os.environ.update(environment(instance, urls, port))
        logs = instance.logs
        manage("migrate", "--verbosity", "0", log=logs / "setup.log")
        django.setup()
        password = make_admin(instance)
        simulator_port = instance.remembered_port("simulator_port")
        file = options.csv or sample.CUSTOMERS
        audience = sample.audience_of(file) if options.once else None
        rows = sample.account_rows(audience)
        load_accounts(instance, rows, f"http://127.0.0.1:{simulator_port}")
        per_account, per_address = map(str, sample.simulator_limits(rows))
        simulator = stack.enter_context(
            running(
                "simulator",
                [
                    *(*MANAGE, "simulate_gateway", "--port", str(simulator_port)),
                    *("--latency-ms", "20-80"),
                    *("--limit-account", per_account, "--limit-ip", per_address),
                    *("--record", str(instance.home / "effects.jsonl")),
                ],
                logs / "simulator.log",
                5,
            )
        )
        await_answer(simulator, simulator_port, "/_sim/stats", logs / "simulator.log")
        workers = stack.enter_context(
            running("stack", [*MANAGE, "stack", "--lanes", "1"], logs / "stack.log", 15)
        )
        await_answer(workers, port, "/healthz", logs / "stack.log")
        if audience is not None:
            from wecom_ops.local import once

            return once.run(file, audience.message, workers, logs)
        print(
            f"\n  Console    http://127.0.0.1:{port}/\n"
            f"  User       {ADMIN}\n"
            f"  Password   {password}\n"
            f"  Simulator  http://127.0.0.1:{simulator_port}/_sim/calls\n"
            f"  Logs       {logs}\n\nCtrl-C stops everything.",
            flush=True,
        )
        workers.process.wait()
        raise LocalStackError(f"The stack has ended:\n{tail(logs / 'stack.log')}")


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without our characters
    try:
        raise_on_signals()
        with open_instance(keep=not options.once) as instance:
            if instance.note:
                print(instance.note)
            return run(options, instance)
    except LocalStackError as error:
        print(error, file=sys.stderr)
        return 1
    except Stopped as stopped:
        print("\nStopped.", flush=True)
        # The only way to end the demo is no failure of it; a sample job cut short is one.
        return stopped.exit_code if options.once else 0


if __name__ == "__main__":
    sys.exit(main())
