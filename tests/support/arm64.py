"""An emulated ARM64 machine: Debian's ARM64 Python, unpacked into a directory and run by qemu.

Nothing is installed: apt-get uses a separate state directory, and packages are unpacked but not configured.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: The /proc/cpuinfo of a Cortex-A76, which LiteRT reads instead of the x86 kernel's.
CPUINFO: Final = """\
processor\t: {number}
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x4
CPU part\t: 0xd0b
CPU revision\t: 1

"""

#: Platform tags of wheels that run on the machine.
PLATFORMS: Final = ("manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in range(17, 37)))

#: Dependencies that no program needs; they are not unpacked.
SUPERFLUOUS: Final = ("dpkg", "tar")


@dataclass(frozen=True)
class Arm64:
    """An emulated machine.

    Attributes:
        qemu: Path of the emulator.
        root: Root directory of the machine's file system.
    """

    qemu: Path
    root: Path

    def python(self, site: Path, *arguments: Any) -> str:
        """Run the machine's Python with the packages in `site`, and return its output."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [self.qemu, "-L", self.root, "-cpu", "cortex-a76", self.root / "usr/bin/python3"]
        environment = {**outside, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
        return run(*command, *arguments, environment=environment)


def run(*command: Any, environment: dict[str, str] | None = None) -> str:
    """Run a command, assert that it succeeds, and return its output."""
    words = [str(word) for word in command]
    finished = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert finished.returncode == 0, f"{words}: {finished.returncode}\n{finished.stdout}{finished.stderr}"
    return finished.stdout


def unpacked(directory: Path, architecture: str, packages: Sequence[str]) -> Path:
    """Download and unpack Debian packages with their dependencies, and return the directory."""
    state, files, root = directory / "state", directory / "files", directory / "root"
    for part in (state / "lists/partial", directory / "cache/archives/partial", files, root):
        part.mkdir(parents=True)
    (state / "status").touch()
    settings = directory / "apt.conf"
    settings.write_text(
        f'Dir::State "{state}"; Dir::State::status "{state}/status"; Dir::Cache "{directory}/cache";\n'
        f'APT::Architecture "{architecture}"; APT::Architectures {{ "{architecture}"; }};\n'
        'APT::Sandbox::User "root"; APT::Install-Recommends "false";\n'
    )
    environment = {**os.environ, "APT_CONFIG": str(settings)}
    run("apt-get", "-qq", "update", environment=environment)
    planned = run("apt-get", "--simulate", "install", *packages, environment=environment)
    needed = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    wanted = [name for name in needed if name not in SUPERFLUOUS]
    run("sh", "-c", 'cd "$0" && apt-get -qq download "$@"', files, *wanted, environment=environment)
    for file in files.iterdir():
        run("dpkg", "-x", file, root)
    return root


def machine(directory: Path) -> Arm64:
    """Set up a machine below a directory."""
    host = run("dpkg", "--print-architecture").strip()
    emulator = unpacked(directory / "emulator", host, ["qemu-user-static"])
    root = unpacked(directory / "arm64", "arm64", ["python3", "libstdc++6"])
    (root / "proc").mkdir(exist_ok=True)
    processors = (CPUINFO.format(number=number) for number in range(os.cpu_count() or 1))
    (root / "proc/cpuinfo").write_text("".join(processors))
    return Arm64(emulator / "usr/bin/qemu-aarch64-static", root)


def site_of(arm64: Arm64, requirement: str, directory: Path) -> Path:
    """Download a package and its dependencies as wheels for the machine, and return the directory."""
    version = arm64.python(directory, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    platforms = [option for platform in PLATFORMS for option in ("--platform", platform)]
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", directory,
        "--only-binary=:all:", "--implementation", "cp", "--python-version", version, *platforms,
        requirement)  # fmt: skip
    return directory
