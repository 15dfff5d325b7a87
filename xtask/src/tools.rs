//! Tools the tasks need beside cargo, installed where that can be done without surprise.
//!
//! Someone with a fresh checkout types one command; being told to install four things first would
//! be the first thing they learn about the project. What is installed is printed, and what belongs
//! to this project alone goes under `target/`, not among the user's own programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::command::{cargo, output, root, run, shown, succeeds};

/// `cargo fmt` and `cargo clippy`.
pub(crate) fn ensure_rustfmt_and_clippy() -> anyhow::Result<()> {
    if has_rustfmt_and_clippy() {
        return Ok(());
    }
    let mut add = Command::new("rustup");
    add.args(["component", "add", "rustfmt", "clippy"]);
    // Where the project is: a toolchain file there decides which toolchain gets the components.
    add.current_dir(root());
    let installed = install(&mut add);
    if installed.is_ok() && has_rustfmt_and_clippy() {
        return Ok(());
    }
    bail!(
        "`cargo fmt` or `cargo clippy` is missing and `{}` did not help; \
         install rustfmt and clippy for this toolchain",
        shown(&add)
    )
}

fn has_rustfmt_and_clippy() -> bool {
    succeeds(&mut cargo(["fmt", "--version"])) && succeeds(&mut cargo(["clippy", "--version"]))
}

/// valgrind, which counts the instructions.
pub(crate) fn ensure_valgrind() -> anyhow::Result<()> {
    ensure_packages(&["valgrind"], || has("valgrind"), "the benchmarks run under valgrind")
}

/// Chromium and what drives it, for the tests of the daemon's page.
pub(crate) fn ensure_chromium() -> anyhow::Result<()> {
    let present = || has("chromium") && has("chromedriver");
    ensure_packages(&["chromium", "chromium-driver"], present, "the page is tested in a browser")
}

/// `ip`, with which the wide-area emulator sets up its hosts, and `script`, for the tests at a terminal.
pub(crate) fn ensure_network_and_terminal() -> anyhow::Result<()> {
    let present = || succeeds(Command::new("ip").arg("-V")) && has("script");
    let purpose = "the wide-area emulator sets up its hosts with `ip`, and commands are tested at a terminal with `script`";
    ensure_packages(&["iproute2", "bsdutils"], present, purpose)
}

/// What commands that `mandate run` runs in the tests are written in, and what ties them to their test.
pub(crate) fn ensure_commands() -> anyhow::Result<()> {
    let present = || ["bash", "python3", "node", "setpriv"].into_iter().all(has);
    let purpose = "`mandate run` is tested with commands in bash, Python and JavaScript";
    ensure_packages(&["bash", "python3", "nodejs", "util-linux"], present, purpose)
}

/// PostgreSQL, whose programs are not in the path, a pooler before it, and what makes certificates for it.
pub(crate) fn ensure_postgresql() -> anyhow::Result<()> {
    let versions = || std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let server = || versions().any(|version| version.path().join("bin/initdb").is_file());
    // It has a command for that, and no option.
    let openssl = || succeeds(Command::new("openssl").arg("version"));
    let present = || server() && Path::new("/usr/sbin/pgbouncer").exists() && openssl();
    let packages = ["postgresql", "pgbouncer", "openssl"];
    ensure_packages(
        &packages,
        present,
        "elections are tested on PostgreSQL, behind PgBouncer and over TLS",
    )
}

/// MariaDB, alone and as a cluster.
pub(crate) fn ensure_mariadb_and_galera() -> anyhow::Result<()> {
    let library = Path::new("/usr/lib/galera/libgalera_smm.so");
    let present = || has("mariadbd") && has("mariadb") && has("rsync") && library.exists();
    let packages = ["mariadb-server", "galera-4", "rsync"];
    ensure_packages(&packages, present, "elections are tested on MariaDB and on a Galera cluster")
}

/// What sends requests to the leader.
pub(crate) fn ensure_haproxy() -> anyhow::Result<()> {
    ensure_packages(
        &["haproxy"],
        // It knows no `--version`.
        || succeeds(Command::new("haproxy").arg("-v")),
        "requests are balanced to the leader by HAProxy",
    )
}

/// ZooKeeper and what runs it.
pub(crate) fn ensure_zookeeper() -> anyhow::Result<()> {
    let present = || Path::new("/usr/share/java/zookeeper.jar").exists() && has("java");
    let packages = ["zookeeper", "default-jre-headless"];
    ensure_packages(&packages, present, "elections are compared with ZooKeeper's")
}

/// etcd.
pub(crate) fn ensure_etcd() -> anyhow::Result<()> {
    ensure_packages(&["etcd-server"], || has("etcd"), "leaders of etcd are steered")
}

/// What builds the Kafka client that is part of the ledger engine.
pub(crate) fn ensure_c_compiler() -> anyhow::Result<()> {
    let openssl = || succeeds(Command::new("pkg-config").args(["--exists", "openssl"]));
    let present = || has("make") && has("gcc") && has("g++") && openssl();
    let packages = ["make", "gcc", "g++", "libc6-dev", "pkg-config", "libssl-dev"];
    ensure_packages(&packages, present, "the Kafka client is built from source")
}

/// Apache Kafka, which is no package: Maven resolves it by name, under `target/`.
pub(crate) fn ensure_kafka() -> anyhow::Result<()> {
    let packages = ["maven", "default-jre-headless"];
    let present = || has("mvn") && has("java");
    ensure_packages(&packages, present, "elections are tested on Apache Kafka")?;
    let directory = root().join("target/kafka");
    let pom = root().join("crates/mandate-servers/kafka/pom.xml");
    let libs = directory.join("libs");
    // What was resolved for another version is no use.
    let resolved = directory.join("pom.xml");
    if libs.is_dir() && std::fs::read(&resolved).ok() == Some(std::fs::read(&pom)?) {
        return Ok(());
    }
    let _ = std::fs::remove_dir_all(&libs);
    let mut resolve = Command::new("mvn");
    resolve.args(["-q", "-B", "dependency:copy-dependencies", "-f"]).arg(&pom);
    resolve.arg(format!("-DoutputDirectory={}", libs.display()));
    install(&mut resolve)?;
    std::fs::copy(&pom, &resolved).context("note which Kafka was resolved")?;
    Ok(())
}

/// What validates the description of the daemon's interface: by name from PyPI, under `target/`.
pub(crate) fn ensure_openapi_validator() -> anyhow::Result<()> {
    const VALIDATOR: &str = "openapi-spec-validator==0.9.0";
    let present =
        || has("python3") && succeeds(Command::new("python3").args(["-m", "pip", "--version"]));
    ensure_packages(
        &["python3", "python3-pip"],
        present,
        "the description of the interface is validated",
    )?;
    let directory = root().join("target/openapi-validator");
    // What was installed of another version is no use.
    let installed = directory.join("installed");
    if std::fs::read_to_string(&installed).is_ok_and(|version| version == VALIDATOR) {
        return Ok(());
    }
    let _ = std::fs::remove_dir_all(&directory);
    let mut add = Command::new("python3");
    add.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]);
    add.arg(&directory).arg(VALIDATOR);
    install(&mut add)?;
    std::fs::write(&installed, VALIDATOR).context("note which validator was installed")?;
    Ok(())
}

fn has(program: &str) -> bool {
    succeeds(Command::new(program).arg("--version"))
}

/// Debian's packages of these names, unless what they bring is there.
fn ensure_packages(
    packages: &[&str],
    present: impl Fn() -> bool,
    purpose: &str,
) -> anyhow::Result<()> {
    if present() {
        return Ok(());
    }
    if is_root() && succeeds(Command::new("apt-get").arg("--version")) {
        let _policy = NoServices::while_this_runs();
        let mut add = apt_get(["install", "-y", "--no-install-recommends"]);
        add.args(packages);
        // A fresh container has no package lists; a machine in use has them and needs no update.
        if install(&mut add).is_err() {
            install(&mut apt_get(["update"]))?;
            install(&mut add)?;
        }
        if present() {
            return Ok(());
        }
    }
    bail!("{purpose}, and something is missing for it: install {}", packages.join(" and "))
}

/// Debian starts the servers that it installs, on their well-known ports. The tests start their own, and
/// need none that stays: while this is there, none is started.
struct NoServices {
    is_ours: bool,
}

impl NoServices {
    const POLICY: &str = "/usr/sbin/policy-rc.d";

    /// A machine that has a policy keeps it. Ours allows everything again once this process has gone.
    fn while_this_runs() -> Self {
        let policy = Path::new(Self::POLICY);
        let text =
            format!("#!/bin/sh\nkill -0 {} 2>/dev/null && exit 101\nexit 0\n", std::process::id());
        let is_ours = !policy.exists() && std::fs::write(policy, text).is_ok();
        let is_ours = is_ours && succeeds(Command::new("chmod").arg("755").arg(policy));
        NoServices { is_ours }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = std::fs::remove_file(Self::POLICY);
        }
    }
}

fn apt_get<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new("apt-get");
    // Another installation under way is waited for, and a download that breaks off is tried again.
    command.args(["-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]);
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

/// A program of a crate of this name, of exactly this version, under `target/`; its path.
pub(crate) fn ensure_cargo_tool(name: &str, version: &str) -> anyhow::Result<PathBuf> {
    let directory = root().join("target/tools");
    let program = directory.join("bin").join(name).with_extension(std::env::consts::EXE_EXTENSION);
    let has_version = || {
        output(Command::new(&program).arg("--version"))
            .is_ok_and(|shown| shown.stdout.trim_ascii() == format!("{name} {version}").as_bytes())
    };
    if !has_version() {
        let mut add = cargo(["install", name, "--locked", "--version"]);
        // Forced: cargo believes its own list even when the program is gone or broken.
        add.arg(version).arg("--force");
        add.arg("--root").arg(&directory);
        install(&mut add)?;
        if !has_version() {
            bail!("{} is not of version {version}", program.display());
        }
    }
    Ok(program)
}

fn install(command: &mut Command) -> anyhow::Result<()> {
    println!("installing: {}", shown(command));
    run(command).context("could not install what is missing")
}
