"""Files for operators: unit, image, compose file, alerts and dashboard name what exists, in forms that hold."""

import json
import operator
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import typer
import yaml
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest

from fedchain.chain.genesis import AggregatorRule
from fedchain.cli.common.exit_codes import EXIT_BAD_INPUT, EXIT_INTERRUPTED
from fedchain.cli.common.start_options import node_settings
from fedchain.cli.main import app
from fedchain.node.config import NodeConfig, load_config
from fedchain.node.custody.passphrase import CREDENTIAL
from fedchain.node.operating.metrics import NodeCollector
from tests.support.chain.builders import genesis
from tests.support.node.service import Shell, serving
from tests.support.node.shell import on_trio, until
from tests.support.paths import DOCS, ROOT

DEPLOY = ROOT / "deploy"
OPERATING = (DOCS / "operating.md").read_text(encoding="utf-8")
UNIT = DEPLOY / "systemd" / "fedchain@.service"
INSTALLED = "/opt/fedchain/bin/fedchain"

OF_PROMETHEUS = {"up"}
"""Metrics that Prometheus makes itself."""


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """Parameters of a command line after ``fedchain``; raises if the program would refuse it."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while True:
        context = command.make_context("fedchain", rest)
        if not hasattr(command, "resolve_command"):
            values: dict[str, Any] = context.params
            return values
        _, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])


def settings_of(values: dict[str, Any]) -> NodeConfig:
    """The settings that the options of ``node start`` make."""
    options = {name: value for name, value in values.items() if value and name in NodeConfig.__slots__}
    return load_config(None, node_settings(values["setting"] or []) | options)


# systemd


def unit_lines(name: str) -> list[str]:
    """Values of a setting in the unit."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_unit_starts_a_node_with_the_settings_of_its_instance() -> None:
    (start,) = unit_lines("ExecStart")
    program, *words = shlex.split(start)
    assert program == INSTALLED
    values = parsed(words)
    assert (str(values["file"]), [*values["setting"]]) == ("/etc/fedchain/%i.toml", ["log_format=json"])
    assert unit_lines("Type") == ["notify"]
    (credential,) = unit_lines("LoadCredential")
    assert credential.startswith(f"{CREDENTIAL}:")


def test_the_example_of_settings_is_one() -> None:
    config = load_config(DEPLOY / "systemd" / "node.toml", {})
    assert (config.key, config.wait_for, config.metrics) == ("key.pem", 3, "127.0.0.1:9100")


def test_a_node_that_ends_before_it_is_ready_is_started_again_unless_it_was_stopped() -> None:
    """OpenBLAS interrupts the program where the system refuses it threads: the unit took that for a stop, for ever."""
    (success,), (again,) = unit_lines("SuccessExitStatus"), unit_lines("RestartForceExitStatus")
    assert success == again == str(EXIT_INTERRUPTED)
    assert unit_lines("RestartPreventExitStatus") == [str(EXIT_BAD_INPUT)]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
def test_systemd_finds_no_fault_with_the_unit_and_little_exposure(tmp_path: Path) -> None:
    def analyze(*words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"SYSTEMD_EMOJI": "0", "SYSTEMD_COLORS": "0"}
        command = ["systemd-analyze", *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)

    text = UNIT.read_text(encoding="utf-8")
    path = tmp_path / "fedchain@alice.service"
    path.write_text(text.replace(INSTALLED, sys.executable), encoding="utf-8")  # a program that is there
    said = analyze("verify", "--man=no", str(path))
    assert (said.returncode, said.stdout + said.stderr) == (0, "")
    path.write_text(text.replace(INSTALLED, sys.executable).replace("Restart=", "Restrat="), encoding="utf-8")
    assert "Restrat" in analyze("verify", "--man=no", str(path)).stderr, "a fault would be found"
    (score,) = re.findall(r"exposure level for \S+: ([\d.]+)", analyze("security", "--offline=true", str(UNIT)).stdout)
    assert float(score) <= 2.0


# containers


def docker_lines(word: str) -> list[str]:
    """Arguments of an instruction of the Dockerfile, continued lines joined."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(rf"^{word} (.*)$", text, re.MULTILINE)


def test_the_linter_finds_no_fault_with_the_image() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    said = subprocess.run([linter, DEPLOY / "Dockerfile"], capture_output=True, text=True, timeout=60, check=False)
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


def test_the_image_is_pinned_and_runs_as_nobody_in_particular() -> None:
    images = {line.split()[0] for line in docker_lines("FROM")}
    assert len(images) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", images.pop())
    assert docker_lines("USER") == ["10001:10001"]
    stages = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").split("\nFROM ")
    assert "pip" not in stages[-1], "nothing is installed in the stage that runs"


def test_the_image_has_compiled_files_of_what_commands_import_and_of_nothing_else() -> None:
    building, running = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").split("\nFROM ")[-2:]
    installs = re.findall(r"pip install (.*)", building)
    assert installs
    assert all("--no-compile" in words for words in installs)
    assert building.rstrip().endswith("/opt/fedchain/bin/python -m fedchain.bytecode")
    assert "PYTHONDONTWRITEBYTECODE=1" in running


def test_the_image_s_commands_are_commands() -> None:
    (entry,), (command,) = docker_lines("ENTRYPOINT"), docker_lines("CMD")
    assert parsed([*json.loads(entry), *json.loads(command)][1:])["file"] == "/var/lib/fedchain/node.toml"
    (health,) = docker_lines("HEALTHCHECK")
    shell, flag, script = json.loads(health.partition("CMD ")[2])
    assert (shell, flag) == ("/bin/sh", "-c")
    assert parsed(shlex.split(script.partition("||")[0])[1:])["folder"] == "/var/lib/fedchain/data"


def test_the_image_is_built_from_what_the_package_is_made_of() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    paths = [*project["tool"]["setuptools"]["package-dir"].values(), "pyproject.toml", "constraints.txt"]
    paths += [project["project"]["readme"], *project["project"]["license-files"]]
    needed = {path.partition("/")[0] for path in paths}
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == needed
    assert all((ROOT / name).exists() for name in needed)


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    return found


def test_three_nodes_know_each_other_by_names_of_the_compose_file() -> None:
    services = {name: service for name, service in compose()["services"].items() if "build" in service}
    assert len(services) == 3
    for name, service in services.items():
        config = settings_of(parsed(shlex.split(service["command"])))
        assert config.wait_for == len(services)
        assert config.bootstrap
        for place in config.bootstrap:
            host, member = re.fullmatch(r"/dns4/(\w+)/tcp/4001/p2p/\$\{(\w+)\}", place).groups()  # type: ignore[union-attr]
            assert host in services.keys() - {name}
            assert member == host.upper()
        assert (service["build"]["dockerfile"], service["read_only"]) == ("deploy/Dockerfile", True)
        mounts = [mount.split(":") for mount in service["volumes"]]
        assert {source for source, _ in mounts} <= compose()["volumes"].keys()


def test_prometheus_asks_every_node_of_the_compose_file() -> None:
    settings = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text(encoding="utf-8"))
    (job,) = settings["scrape_configs"]
    asked = {target for group in job["static_configs"] for target in group["targets"]}
    assert asked == {f"{name}:9100" for name, service in compose()["services"].items() if "build" in service}
    assert all((DEPLOY / "prometheus" / name).exists() for name in settings["rule_files"])
    assert f'up{{job="{job["job_name"]}"}}' in (DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8")


# metrics


@pytest.fixture(scope="module")
def exposed() -> set[str]:
    """Names of all metrics of a node that has trained and mined, as Prometheus reads them."""
    texts: list[str] = []

    @on_trio
    async def scrape() -> None:
        registry = CollectorRegistry(auto_describe=False)
        alone = genesis(1, rounds=1, target_mining_time_ms=1_000, aggregator=AggregatorRule.FIXED)
        async with serving(Shell(), alone, hears=0) as service:
            await until(lambda: service.status()["finished"], "the last round is closed")
            registry.register(NodeCollector(service, CountedNetwork()))
            ProcessCollector(registry=registry)
            PlatformCollector(registry=registry)
            texts.append(generate_latest(registry).decode())

    scrape()
    return set(re.findall(r"^# TYPE (\w+) ", texts[0], re.MULTILINE))


class CountedNetwork:
    """Numbers of a network that nothing went through."""

    messages_in = messages_out = bytes_in = bytes_out = dropped = 0

    @property
    def counters(self) -> "CountedNetwork":
        return self

    def bans(self) -> Sequence[object]:
        return ()


def selected(expression: Any) -> Iterator[str]:
    """Names of the metrics that an expression of PromQL selects."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression.name or ""
    for name in ("lhs", "rhs", "expr", "vector_selector", "param"):
        if (part := getattr(expression, name, None)) is not None:
            yield from selected(part)
    for part in getattr(expression, "args", None) or ():
        yield from selected(part)


def names_in(text: str) -> set[str]:
    return set(selected(promql_parser.parse(text)))


def test_the_parser_of_expressions_finds_names_wherever_they_stand() -> None:
    text = "sum by (a) (rate(b_total{x='y'}[5m])) / on(z) abs(c - d offset 1h) > bool 1 or (e unless -f) "
    assert names_in(text) == {"b_total", "c", "d", "e", "f"}
    with pytest.raises(ValueError, match="unclosed"):
        names_in("rate(b_total[5m]")


def test_alerts_name_metrics_that_a_node_has(exposed: set[str]) -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(alerts) >= 10
    for alert in alerts:
        named = names_in(alert["expr"])
        assert named, alert
        assert named <= exposed | OF_PROMETHEUS, alert
        assert alert["labels"]["severity"] in ("critical", "warning")
        assert set(alert["annotations"]) == {"summary", "description"}
        assert re.fullmatch(r"(\d+[smhd])?", alert.get("for", ""))
    assert len({alert["alert"] for alert in alerts}) == len(alerts)


@pytest.mark.parametrize(("running_s", "expected"), [(3_000, False), (3_601, True)])
def test_a_federation_that_gets_no_first_block_is_told_of(running_s: float, expected: bool) -> None:
    values: dict[str, float] = {}

    @on_trio
    async def scrape() -> None:
        async with serving(Shell(), genesis(4), hears=0) as service:
            service.activity.started_s -= running_s
            for metric in NodeCollector(service, CountedNetwork()).collect():
                values.update({sample.name: sample.value for sample in metric.samples if not sample.labels})

    scrape()
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))
    (stalled,) = [rule for rule in rules["groups"][0]["rules"] if rule["alert"] == "FedchainStalled"]
    assert values["fedchain_head_height"] == 0
    assert holds(promql_parser.parse(stalled["expr"]), values) is expected


@pytest.mark.parametrize(("pause_s", "starts", "expected"), [(30, 40, True), (300, 3, False)])
def test_a_node_that_ends_soon_after_each_start_is_told_of(pause_s: int, starts: int, expected: bool) -> None:
    """As one whose training process is killed each time: it answers for some seconds, so that no silence lasts."""
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text(encoding="utf-8"))
    every_s = int(prometheus["global"]["scrape_interval"].removesuffix("s"))
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    (restarts,) = [rule for rule in rules if names_in(rule["expr"]) == {"process_start_time_seconds"}]
    condition: Any = promql_parser.parse(restarts["expr"])
    call = condition.lhs
    assert (call.func.name, str(condition.op), "for" in restarts) == ("changes", ">", False)
    begun = [number * pause_s for number in range(starts)]
    seen = list[int]()
    for now_s in range(0, int(call.args[0].range.total_seconds()), every_s):
        seen += [start_s for start_s in begun if start_s + 5 <= now_s < start_s + 20]
    changes = sum(one != other for one, other in pairwise(seen))
    assert (changes > condition.rhs.val) is expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, set()),
        ({"elector": False}, {"FedchainCountsNoMore"}),
        ({"not_counted": "round 2: it was not ready when the block was mined"}, {"FedchainPostsNotCounted"}),
    ],
)
def test_a_member_that_counts_no_more_or_whose_posts_do_not_is_told_of(
    changed: dict[str, Any], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was away by its silence and came back, or whose training hangs: nothing else is out of order."""
    values: dict[str, float] = {}

    @on_trio
    async def scrape() -> None:
        async with serving(Shell(), genesis(4), hears=0) as service:
            now = service.status() | {"silent": False} | changed
            monkeypatch.setattr(service, "status", lambda: now)
            for metric in NodeCollector(service, CountedNetwork()).collect():
                values.update({sample.name: sample.value for sample in metric.samples if not sample.labels})

    scrape()
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    states = [rule for rule in rules if re.search(r"fedchain_(elector|silent|post_counted)\b", rule["expr"])]
    assert len(states) == 3
    assert {rule["alert"] for rule in states if holds(promql_parser.parse(rule["expr"]), values)} == expected


def holds(expression: Any, values: Mapping[str, float]) -> bool:
    """Whether comparisons with numbers, joined by ``and``, are true of a node; none is of a metric that it lacks."""
    left, right = expression.lhs, expression.rhs
    if str(expression.op) == "and":
        return holds(left, values) and holds(right, values)
    compare = {">": operator.gt, "==": operator.eq}[str(expression.op)]
    return left.name in values and compare(values[left.name], right.val)


def test_the_dashboard_names_metrics_that_a_node_has_and_shows_most_of_them(exposed: set[str]) -> None:
    board = json.loads((DEPLOY / "grafana" / "fedchain.json").read_text(encoding="utf-8"))
    named: set[str] = set()
    for panel in board["panels"]:
        assert panel["description"]
        for target in panel["targets"]:
            named |= names_in(target["expr"])
    (query,) = [item["query"]["query"] for item in board["templating"]["list"] if item["type"] == "query"]
    named |= set(re.findall(r"label_values\((\w+),", query))
    assert named <= exposed
    ours = {name for name in exposed if name.startswith("fedchain_")}
    assert len(ours & named) > len(ours) / 2
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places), "no panel lies on another"


def test_every_metric_is_explained_and_no_other(exposed: set[str]) -> None:
    section = OPERATING.split("## Metrics")[1]
    explained = re.findall(r"^\| `(fedchain_\w+)` \|", section, re.MULTILINE)
    assert len(explained) == len(set(explained))
    assert set(explained) == {name for name in exposed if name.startswith("fedchain_")}


# the guide


def commands_in(text: str) -> list[list[str]]:
    """Every command of ours in an indented block or behind a prompt, without comments and redirections."""
    text = text.replace("\\\n", " ")
    lines = re.findall(
        rf"^(?:    |\$ )(?:docker compose (?:run --rm|exec) \w+ |systemd-run .*(?={INSTALLED}))?(.*)$",
        text,
        re.MULTILINE,
    )
    found = []
    for line in lines:
        line = line.partition(" #")[0].partition(" > ")[0].partition(" | ")[0]
        words = shlex.split(line.replace("…", "x"))
        if words[:1] in (["fedchain"], [INSTALLED]):
            found.append(words[1:])
        elif words[:1] in (["keys"], ["genesis"]):
            found.append(words)
    return found


def test_the_guide_s_commands_are_commands() -> None:
    commands = commands_in(OPERATING)
    assert len(commands) >= 10
    assert ["node", "check", "/etc/fedchain/alice.toml"] in commands
    for words in commands:
        parsed(words)


def test_the_guide_makes_the_wheel_that_it_installs_and_installs_as_the_image_does() -> None:
    section = OPERATING.split("## Under systemd")[1].split("\n## ")[0]
    assert 0 < section.index("pip wheel . --no-deps\n") < section.index("pip install --no-compile fedchain-*.whl\n")
    (constraints,) = re.findall(r"^    export PIP_CONSTRAINT=(.*)$", section, re.MULTILINE)
    assert (ROOT / constraints).exists()
    (index,) = (line.removeprefix("TORCH_INDEX=") for line in docker_lines("ARG"))
    installed = re.findall(r"^    .*pip install (.*)$", section, re.MULTILINE)
    (image,) = (re.findall(r"pip install (.*?) +&&", line) for line in docker_lines("RUN") if "pip install" in line)
    assert installed == [words.replace('"$TORCH_INDEX"', index).replace("/wheels/", "") for words in image]
    assert index.endswith("/cpu"), "torch without gigabytes of CUDA"
    assert installed[0].endswith(f"--no-deps --index-url {index} torch"), "before what would bring another one"
    assert "/opt/fedchain/bin/python -m fedchain.bytecode\n" in section


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq on this machine")
def test_the_guide_s_way_to_read_the_journal_hides_no_line() -> None:
    """As the one that says why settings are wrong, before they say that lines are JSON."""
    (program,) = re.findall(r"jq ([^`]*)`", OPERATING)
    lines = 'Started alice.\n{"level": "info", "message": "listening"}\nfedchain: alice.toml key is 3\n'
    said = subprocess.run(["jq", *shlex.split(program)], input=lines, text=True, capture_output=True, check=True)
    assert said.stdout.splitlines() == ["Started alice.", "listening", "fedchain: alice.toml key is 3"]


def test_the_guide_s_files_go_to_folders_that_few_machines_have(tmp_path: Path) -> None:
    """With a folder in place of the machine's, and without the users that it would make."""
    section = OPERATING.split("## Under systemd")[1].split("\n## ")[0]
    source, machine = tmp_path / "source", tmp_path / "machine"
    shutil.copytree(DEPLOY, source / "deploy")
    for name in ("passphrase", "key.pem", "genesis.fedchain"):
        (source / name).touch()
    (machine / "etc" / "systemd" / "system").mkdir(parents=True)
    for line in re.findall(r"^    install (.*)$", section, re.MULTILINE):
        *words, target = shlex.split(line.replace(" -o fedchain -g fedchain", ""))
        said = subprocess.run(["install", *words, f"{machine}{target}"], cwd=source, capture_output=True, check=False)
        assert (said.returncode, said.stderr) == (0, b""), line
    found = {str(path.relative_to(machine)) for path in machine.rglob("*") if path.is_file()}
    assert {"etc/sysusers.d/fedchain.conf", "etc/fedchain/alice.toml", "etc/fedchain/alice.passphrase"} < found
    assert {"etc/systemd/system/fedchain@.service", "var/lib/fedchain/alice/key.pem"} < found


def test_the_batch_file_runs_a_command_on_all_machines_of_an_allocation(tmp_path: Path) -> None:
    """With programs of Slurm and Ray that say what they were asked."""
    programs, environment = tmp_path / "bin", tmp_path / ".venv" / "bin"
    for folder in (programs, environment):
        folder.mkdir(parents=True)
    for program, text in {
        programs / "scontrol": 'test "$*" = "show hostnames machine[1-2]" && printf "machine1\\nmachine2\\n"',
        programs / "srun": 'while test "${1#--}" != "$1"; do echo "$1" >> step; shift; done; exec "$@"',
        environment / "ray": 'test ${#RAY_AUTH_TOKEN} = 64 && printf "%s\\n" "$@"',
    }.items():
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    slurm = {"NODELIST": "machine[1-2]", "NUM_NODES": "2"}
    given = {f"SLURM_JOB_{name}": value for name, value in slurm.items()} | {"SLURM_CPUS_PER_TASK": "16"}
    words = ["bash", str(DEPLOY / "slurm" / "fedchain.sbatch"), "simulate", "--peers", "3"]
    path = f"{programs}:{os.environ['PATH']}"
    said = subprocess.run(
        words, cwd=tmp_path, env=given | {"PATH": path}, check=True, capture_output=True, text=True
    ).stdout.split()
    ray, command = said[: said.index("--")], said[said.index("--") + 1 :]
    assert ray[:5] == ["symmetric-run", "--address", "machine1:6379", "--min-nodes", "2"]
    assert command[0] == "fedchain"
    found = parsed(command[1:])
    assert (found["peers"], found["executor"]) == (3, "ray:machine1:6379")
    batch = re.findall(r"^#SBATCH (\S+)", (DEPLOY / "slurm" / "fedchain.sbatch").read_text(), re.MULTILINE)
    step = (tmp_path / "step").read_text().split()
    assert {"--no-kill", "--cpus-per-task=16"} <= set(batch) & set(step), "srun(1): a step inherits neither"


def test_the_ray_job_runs_a_command_on_pods_that_share_a_volume() -> None:
    job = yaml.safe_load((DEPLOY / "kuberay" / "rayjob.yaml").read_text())
    spec, cluster = job["spec"], job["spec"]["rayClusterSpec"]
    words = shlex.split(spec["entrypoint"])
    assert words[0] == "fedchain"
    found = parsed(words[1:])
    assert found["executor"] == "ray:auto"
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert {volume["name"] for volume in pod["volumes"]} == mounted.keys()
        (shared,) = mounted.values()
        data = {row["name"]: row["value"] for row in container["env"]}["FEDCHAIN_DATA"]
        assert all(Path(path).is_relative_to(shared) for path in (found["out"], data))


def test_a_successor_takes_the_model_that_there_is_whatever_the_method() -> None:
    section = OPERATING.split("## A successor federation")[1].split("\n## ")[0]
    exports = [
        parsed(words) for words in commands_in(re.sub(r"^   ", "", section, flags=re.MULTILINE)) if words[0] == "model"
    ]
    assert {bool(given["aggregate"]) for given in exports} == {True, False}


def test_the_passphrase_lies_where_the_commands_of_the_compose_file_look_for_it() -> None:
    (named,) = re.findall(r"passphrase into a file\s+`(\w+)`.*the commands of `compose.yaml` name it", OPERATING)
    services = [service for service in compose()["services"].values() if "build" in service]
    assert {settings_of(parsed(shlex.split(service["command"]))).passphrase_file for service in services} == {named}


def test_every_file_that_the_guide_names_is_there() -> None:
    named = set(re.findall(r"`?(deploy/[\w/@.-]+\w)", OPERATING))
    assert len(named) >= 6
    assert all((ROOT / name).exists() for name in named - {"deploy/.env"})
