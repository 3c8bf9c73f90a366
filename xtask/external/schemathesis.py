"""Schemathesis against the admin API of a live gateway: no answer is a 500, and all are as the document says."""
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

BIN, WORK = pathlib.Path(os.environ["ROOT"], "target/debug"), pathlib.Path(os.environ["WORK"], "admin-api")
TOKEN = "write-token-of-this-check-0001"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,response_headers_conformance"
PATIENCE = 60
WORK.mkdir(exist_ok=True)
running = []


def started(name, command, pattern):
    """Starts a program; what the pattern finds in what it says."""
    log = WORK / f"{name}.log"
    with log.open("w") as out:
        # Changes and refusals are many, and each is a line.
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=WORK, env={**os.environ, "RUST_LOG": "info"})
    running.append(process)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(pattern, log.read_text()):
            return found.group(1)
        time.sleep(0.1)
    sys.exit(f"{name} does not say where it listens: {log}")


def ready(url):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            return urllib.request.urlopen(url, timeout=5)
        except OSError:
            time.sleep(0.1)
    sys.exit(f"{url} is not ready")


def checked(name, settings, *more):
    """A gateway of its own, since a run changes and removes what there is; whether all is well."""
    engine = started(
        f"engine-{name}",
        [BIN / "kvasirctl", "sim-engine", "--port", "0", "--model", "tiny", "--events", "tcp://127.0.0.1:*"],
        r"(http://[\d.:]+)",
    )
    config = WORK / f"{name}.yaml"
    config.write_text(
        "listen: 127.0.0.1:0\n"
        f"admin: {{listen: '127.0.0.1:0', read_token: 'read-{TOKEN}', write_token: '{TOKEN}'}}\n"
        f"pools: [{{model: tiny, endpoints: [{{url: '{engine}'}}]}}]\n"
    )
    gateway = [BIN / "kvasir-gateway", "serve", "--config", config]
    addresses = started(
        f"gateway-{name}", gateway, r"the admin API is served address=(\S+)(?:.|\n)*: listening address=\S+"
    )
    log = (WORK / f"gateway-{name}.log").read_text()
    ready("http://" + re.search(r": listening address=(\S+)", log).group(1) + "/readyz")
    toml = WORK / f"{name}.toml"
    toml.write_text(settings.format(endpoint=engine.removeprefix("http://")))
    command = ["schemathesis", "--config-file", toml, "run", f"http://{addresses}/api/v1/openapi.json"]
    command += ["-H", f"authorization: Bearer {TOKEN}", "-c", CHECKS, "--phases", "coverage,fuzzing"]
    command += ["--max-examples", "25", "--generation-deterministic", "--continue-on-failure", *more]
    passed = subprocess.run(command, cwd=WORK).returncode == 0
    if running[-1].poll() is not None:
        print("the gateway ended", file=sys.stderr)
    if "panicked" in (text := (WORK / f"gateway-{name}.log").read_text()):
        print(text[text.index("panicked") :][:2000], file=sys.stderr)
        passed = False
    return passed and running[-1].poll() is None


try:
    made_up = checked("made-up-names", "")
    # Removing the pool that all others are about would leave nothing to ask for.
    names = '[parameters]\n"path.model" = "tiny"\n"path.endpoint" = "{endpoint}"\n'
    there = checked("names-that-exist", names, "--exclude-operation-id", "DeletePool")
finally:
    for process in running:
        process.terminate()
        process.wait()
sys.exit(not (made_up and there))
