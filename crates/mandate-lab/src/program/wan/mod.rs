//! `mandate lab wan`: a wide-area network on this machine, and what one does with it.

use std::convert::Infallible;
use std::fmt::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use crate::operator;
use anyhow::Context;
use mandate_cli::topology::Topology;
use mandate_lab::wan::Wan;
use mandate_lab::wan::control::{
    ControlClient, ControlError, ControlReply, ControlRequest, ControlSocket, EmulatorStatus,
    HostEntry, status,
};
use mandate_lab::wan::namespace;
use mandate_lab::wan::switch::LinkFigures;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use mandate_cli::exit::Exit;
use mandate_cli::input;
use mandate_cli::output::{self, Format, ms, plural};

mod args;
mod check;

pub(crate) use args::WanCommand;
use args::{EnterArgs, ExecArgs, NameArgs, UpArgs};

/// A topology is a page or two.
const MAX_BYTES: u64 = 1 << 20;

pub(crate) fn run(command: &WanCommand, format: Format) -> anyhow::Result<Exit> {
    match command {
        WanCommand::Up(args) => up(args, format),
        WanCommand::Exec(args) => exec(args),
        WanCommand::Fault { name, fault } => inflict(name, fault.request(), format),
        WanCommand::Status(name) => show(name, format),
        WanCommand::Down(name) => down(name),
        WanCommand::Enter(args) => match enter(args)? {},
        WanCommand::Check(args) => check::run(args, format),
    }
}

fn up(args: &UpArgs, format: Format) -> anyhow::Result<Exit> {
    let text = input::read_text(&args.topology, MAX_BYTES)?;
    let topology = Topology::parse(&text)
        .with_context(|| format!("{} is no topology", args.topology.display()))?;
    let name = &args.name.name;
    let control = ControlSocket::bind(name).with_context(|| {
        format!("an emulator called `{name}` is running already: end it with `mandate lab wan down`, or give another --name")
    })?;
    let wan = Wan::start(&topology, args.seed)?;
    let status = status(&wan);
    if !status.real_time {
        output::complain(
            "real-time priority was refused (CAP_SYS_NICE): packets may be milliseconds late when the machine is busy",
        );
    }
    match format {
        // One line, so that a program can read it and go on while the emulator runs.
        Format::Json => output::print_json_line(&status)?,
        Format::Text => output::print(hosts_text(&status, name))?,
    }
    control.serve(wan)?;
    Ok(Exit::Success)
}

fn hosts_text(status: &EmulatorStatus, name: &str) -> String {
    let mut text = format!("{} up:\n\n", plural(status.hosts.len() as u64, "host"));
    for HostEntry { name, site, address, address_v6, .. } in &status.hosts {
        let _ = writeln!(text, "  {name:<8} {address:<12} {address_v6:<10} at {site}");
    }
    let flag = if name == args::DEFAULT_NAME { String::new() } else { format!(" --name {name}") };
    let host = &status.hosts[0].name;
    text += &format!("\nIn another terminal:  mandate lab wan exec{flag} {host} -- COMMAND\n");
    text + "Until Ctrl-C, or `mandate lab wan down`; nothing is left behind."
}

/// Runs a command on a host. It ends with us, and we end with the network.
fn exec(args: &ExecArgs) -> anyhow::Result<Exit> {
    let mut client = ControlClient::connect(&args.name.name)?;
    let ControlReply::Host(host) =
        client.ask(&ControlRequest::Enter { host: args.host.clone() })?
    else {
        anyhow::bail!("the emulator is of another version: end it, and start it anew")
    };
    namespace::enter(&host.namespace).with_context(|| {
        format!("could not enter {} at {}; that needs root", host.name, host.namespace.display())
    })?;
    // From the main thread: the command dies when the thread that started it does.
    let mut child = Command::new("/proc/self/exe")
        .args([operator::COMMAND, "become", "--guard", &std::process::id().to_string(), "--"])
        .args(&args.command)
        .env("MANDATE_WAN_HOST", &host.name)
        .env("MANDATE_WAN_ADDRESS", host.address.to_string())
        .spawn()
        .context("could not start this program anew, to become the command")?;
    let process = Pid::from_child(&child);
    std::thread::spawn(move || {
        client.wait_for_end();
        output::complain("the emulator has ended: so does the command");
        let _ = kill_process(process, Signal::KILL);
    });
    let status = child.wait().context("could not wait for the command")?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(Exit::Command(u8::try_from(code).unwrap_or(1)))
}

/// Becomes a command on a host.
fn enter(args: &EnterArgs) -> anyhow::Result<Infallible> {
    namespace::enter(&args.namespace)
        .with_context(|| format!("could not enter {}", args.namespace.display()))?;
    let error = Command::new(&args.command[0]).args(&args.command[1..]).exec();
    Err(error).with_context(|| format!("could not run {}", args.command[0]))
}

#[derive(Serialize)]
struct DoneDocument {
    links: usize,
}

fn inflict(name: &NameArgs, request: ControlRequest, format: Format) -> anyhow::Result<Exit> {
    let ControlReply::Done { links } = ControlClient::connect(&name.name)?.ask(&request)? else {
        anyhow::bail!("the emulator is of another version: end it, and start it anew")
    };
    match format {
        Format::Json => output::print_json(&DoneDocument { links })?,
        Format::Text => {
            let verb = if request == ControlRequest::Heal { "healed" } else { "changed" };
            output::print(format!("{verb}: {}", plural(links as u64, "directed link")))?;
        }
    }
    Ok(Exit::Success)
}

fn show(name: &NameArgs, format: Format) -> anyhow::Result<Exit> {
    let ControlReply::Status(status) =
        ControlClient::connect(&name.name)?.ask(&ControlRequest::Status)?
    else {
        anyhow::bail!("the emulator is of another version: end it, and start it anew")
    };
    match format {
        Format::Json => output::print_json(&status)?,
        Format::Text => output::print(status_text(&status))?,
    }
    Ok(Exit::Success)
}

fn status_text(status: &EmulatorStatus) -> String {
    let mut text = format!("process {}", status.process);
    if !status.real_time {
        text += ", without real-time priority";
    }
    text += "\n\n";
    for HostEntry { name, site, address, .. } in &status.hosts {
        let _ = writeln!(text, "  {name:<8} {address:<12} at {site}");
    }
    if !status.figures.links.is_empty() {
        text += "\n  from     to         delivered      lost       cut   overflow   fault\n";
    }
    for link in &status.figures.links {
        let counts = link.counts;
        let _ = writeln!(
            text,
            "  {:<8} {:<8} {:>11} {:>9} {:>9} {:>10}   {}",
            link.from,
            link.to,
            counts.delivered,
            counts.lost,
            counts.cut,
            counts.overflowed,
            fault_text(link)
        );
    }
    text.trim_end().to_owned()
}

fn fault_text(link: &LinkFigures) -> String {
    let fault = link.impairment;
    let mut words = Vec::new();
    if fault.cut {
        words.push("cut".to_owned());
    }
    if fault.loss > 0.0 {
        words.push(format!("loss {} %", fault.loss * 100.0));
    }
    if !fault.delay.is_zero() {
        words.push(format!("{} ms later", ms(fault.delay)));
    }
    if !fault.jitter.is_zero() {
        words.push(format!("jitter {} ms", ms(fault.jitter)));
    }
    words.join(", ")
}

fn down(name: &NameArgs) -> anyhow::Result<Exit> {
    let mut client = match ControlClient::connect(&name.name) {
        // What is not there is down: a script may say so twice.
        Err(ControlError::Absent(_)) => {
            output::print("nothing was up")?;
            return Ok(Exit::Success);
        }
        client => client?,
    };
    client.ask(&ControlRequest::Down)?;
    client.wait_for_end();
    output::print("down")?;
    Ok(Exit::Success)
}
