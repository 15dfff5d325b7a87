//! `mandate init`: a group on this host, to try things with, and to copy from.

use std::fs;

use anyhow::Context;
use mandate_proto::identity::MemberId;
use serde::Serialize;

use crate::args::{CertsArgs, InitArgs};
use crate::certs;
use crate::exit::Exit;
use crate::output::{self, Format};

#[derive(Serialize)]
struct Document {
    configurations: Vec<String>,
}

/// How a group elects that nobody has told otherwise.
const ELECTION: &str = "guarantee = \"leased\"\ntimeout = \"500ms\"\noracle = \"latency/10ms\"\n";

pub(crate) fn run(args: &InitArgs, format: Format) -> anyhow::Result<Exit> {
    let configurations = make(args, ELECTION)?;
    match format {
        Format::Json => output::print_json(&Document { configurations })?,
        Format::Text => output::print(text(args, &configurations))?,
    }
    Ok(Exit::Success)
}

/// Makes the files; where the configurations are.
pub(crate) fn make(args: &InitArgs, election: &str) -> anyhow::Result<Vec<String>> {
    let last = u16::try_from(args.members).ok().and_then(|members| args.port.checked_add(members));
    anyhow::ensure!(last.is_some(), "there are not so many ports above {}", args.port);
    let members: Vec<_> = (1..=args.members).map(MemberId::new).collect();
    let certs = CertsArgs {
        group: args.group.clone(),
        dir: args.dir.join("certs"),
        days: 365,
        renew: false,
        members: members.clone(),
    };
    certs::make(&certs)?;
    let mut configurations = Vec::new();
    for me in &members {
        let path = args.dir.join(format!("{me}.toml"));
        anyhow::ensure!(
            !path.exists(),
            "{} is there already, and is not overwritten: choose another directory",
            path.display()
        );
        fs::write(&path, configuration(args, election, *me, &members))
            .with_context(|| format!("could not write {}", path.display()))?;
        configurations.push(path.display().to_string());
    }
    Ok(configurations)
}

fn configuration(args: &InitArgs, election: &str, me: MemberId, members: &[MemberId]) -> String {
    let address = |id: MemberId| format!("127.0.0.1:{}", u32::from(args.port) + id.get());
    let others = members.iter().filter(|id| **id != me);
    let peers: String = others.map(|id| format!("{id} = \"{}\"\n", address(*id))).collect();
    format!(
        "# A member of the group {group}; `mandate node --help` explains every line.\n\
         group = \"{group}\"\n\
         member = \"{me}\"\n\
         listen = \"{listen}\"\n\
         state = \"{me}.state\"\n\
         api = \"127.0.0.1:{api}\"\n\n\
         [peers]\n{peers}\n\
         [tls]\n\
         ca = \"certs/ca.pem\"\n\
         certificate = \"certs/{me}.pem\"\n\
         key = \"certs/{me}.key\"\n\n\
         [detection]\n\
         interval = \"330ms\"\n\
         within = \"1s\"\n\n\
         [election]\n{election}",
        group = args.group,
        listen = address(me),
        api = u32::from(args.port) + 1000 + me.get(),
    )
}

fn text(args: &InitArgs, configurations: &[String]) -> String {
    let mut text = format!(
        "A group of {} on this host. Start each member in a terminal of its own, --new only this first time:\n\n",
        configurations.len()
    );
    for configuration in configurations {
        text += &format!("  mandate node --config {configuration} --new\n");
    }
    let api = format!("127.0.0.1:{}", u32::from(args.port) + 1001);
    text + &format!(
        "\nThen ask any of them:\n\n  mandate status --api {api}\n  mandate observe --api {api}"
    )
}
