"""The server's wheel of the client: what it has, and that it installs and runs alone."""

import email
import hashlib
import io
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import unquote

import httpx

from mistify_server.web.client_wheel import client_wheel

#: Loads the client from the wheel, and checks that the rest of the repository cannot be imported.
ALONE = """
import importlib.metadata, importlib.util, sys
import mistify_client, mistify_client.cli.main
where, version = sys.argv[1:]
assert mistify_client.__file__.startswith(where), mistify_client.__file__
assert importlib.metadata.version("mistify-porting") == version
for absent in ("mistify_server", "executors"):
    assert importlib.util.find_spec(absent) is None, absent
"""


def test_the_wheel_has_the_client_and_no_more() -> None:
    archive = zipfile.ZipFile(io.BytesIO(client_wheel().content))
    tops = {name.partition("/")[0] for name in archive.namelist()}
    version = f"{distribution('mistify-porting').version}+client"
    about = f"mistify_porting-{version}.dist-info"
    assert tops == {"mistify", "mistify_client", about}
    assert {"mistify/py.typed", "mistify/v1/porting_pb2.py", "mistify_client/runtime/model.py"} <= set(
        archive.namelist()
    )
    metadata = email.message_from_bytes(archive.read(f"{about}/METADATA"))
    required = metadata.get_all("Requires-Dist") or []
    always = {each.partition(">")[0] for each in required if ";" not in each}
    assert {"numpy", "ai-edge-litert", "grpcio", "typer"} <= always
    assert not any(each.startswith(("tensorflow", "keras", "fastapi")) for each in required)
    points = archive.read(f"{about}/entry_points.txt").decode()
    assert "mistify = mistify_client.cli.main:main" in points
    assert "mistify_client.monitor.policies.predictive" in points
    assert "mistify_server" not in points
    assert "executors" not in points


def test_the_wheel_has_the_extras_that_errors_of_the_client_name() -> None:
    archive = zipfile.ZipFile(io.BytesIO(client_wheel().content))
    sources = (archive.read(name).decode() for name in archive.namelist() if name.endswith(".py"))
    naming = re.compile(r"""mistify-porting\[(?P<extra>\w+)\]|_installed\("--\w+", "(?P<for_option>\w+)"\)""")
    named = {found[found.lastgroup] for source in sources for found in naming.finditer(source)}
    (about,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
    metadata = email.message_from_bytes(archive.read(about))
    assert named - {"server"} == {"images", "mlflow", "onnx", "plots", "signatures"}
    assert named - {"server"} <= set(metadata.get_all("Provides-Extra") or [])
    required = metadata.get_all("Requires-Dist") or []
    assert any(each.startswith("cryptography") and "signatures" in each for each in required)


def test_equal_files_make_equal_wheels() -> None:
    first = client_wheel()
    client_wheel.cache_clear()
    assert client_wheel() == first


async def test_pip_installs_the_wheel_from_the_server_and_the_client_runs_alone(
    web: httpx.AsyncClient, tmp_path: Path
) -> None:
    """The dependencies are those of this environment: nothing is downloaded."""
    listed = (await web.get("/simple/")).text
    assert '<a href="/simple/mistify-porting/">mistify-porting</a>' in listed
    project = (await web.get("/simple/mistify-porting/")).text
    address, digest = project.split('href="')[1].split('"')[0].split("#sha256=")
    content = (await web.get(address)).content
    assert hashlib.sha256(content).hexdigest() == digest
    wheel = tmp_path / unquote(address.rpartition("/")[2])
    wheel.write_bytes(content)
    assert (await web.get("/simple/mistify-porting/other.whl")).status_code == 404

    target = tmp_path / "installed"
    run("-m", "pip", "install", "--no-index", "--no-deps", "--target", target, wheel)
    run("-m", "compileall", "-q", target)
    version = wheel.name.split("-")[1]
    # Directories in PYTHONPATH do not process .pth files, so that this checkout cannot be imported.
    path = os.pathsep.join([str(target), sysconfig.get_path("purelib")])
    run("-c", ALONE, target, version, path=path)


def run(*arguments: str | Path, path: str = "") -> None:
    finished = subprocess.run(
        [sys.executable, "-S" if path else "-B", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": path},
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
