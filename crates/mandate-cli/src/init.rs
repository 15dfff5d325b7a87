//! `mandate init`: a group on this host, to try things with, and to copy from.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context;
use mandate_proto::identity::MemberId;
use serde::Serialize;

use crate::args::InitArgs;
use crate::certs::{self, CertsArgs};
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
        rotation: Default::default(),
        members: members.clone(),
    };
    certs::make(&certs)?;
    let mut configurations = Vec::new();
    let address = |id: MemberId, above: u32| -> anyhow::Result<SocketAddr> {
        let port =
            u16::try_from(u32::from(args.port) + above + id.get()).context("no such port")?;
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    };
    let tables = tables(election);
    for me in &members {
        let others = members.iter().filter(|id| *id != me);
        let peers = others.map(|id| Ok((*id, address(*id, 0)?.to_string())));
        let file = MemberFile {
            group: &args.group,
            me: *me,
            listen: address(*me, 0)?,
            api: address(*me, 1000)?,
            peers: peers.collect::<anyhow::Result<_>>()?,
            tables: &tables,
        };
        configurations.push(file.write(&args.dir)?.display().to_string());
    }
    Ok(configurations)
}

/// What may be left out of a configuration, written out: the usual detection, and how the group elects.
pub fn tables(election: &str) -> String {
    format!("[detection]\ninterval = \"330ms\"\nwithin = \"1s\"\n\n[election]\n{election}")
}

/// What is in a member's configuration.
pub struct MemberFile<'a> {
    pub group: &'a str,
    pub me: MemberId,
    pub listen: SocketAddr,
    pub api: SocketAddr,
    pub peers: Vec<(MemberId, String)>,
    /// Everything that may be left out.
    pub tables: &'a str,
}

impl MemberFile<'_> {
    /// Writes it into a directory that has the certificates; where it is then.
    pub fn write(&self, directory: &Path) -> anyhow::Result<PathBuf> {
        let path = directory.join(format!("{}.toml", self.me));
        anyhow::ensure!(
            !path.exists(),
            "{} is there already, and is not overwritten: choose another directory",
            path.display()
        );
        fs::write(&path, self.text())
            .with_context(|| format!("could not write {}", path.display()))?;
        Ok(path)
    }

    /// Its text.
    pub fn text(&self) -> String {
        let MemberFile { group, me, listen, api, peers, tables } = self;
        let peers: String =
            peers.iter().map(|(id, address)| format!("{id} = \"{address}\"\n")).collect();
        format!(
            "# A member of the group {group}; `mandate node --help` explains every line.\n\
             group = \"{group}\"\n\
             member = \"{me}\"\n\
             listen = \"{listen}\"\n\
             state = \"{me}.state\"\n\
             api = \"{api}\"\n\n\
             [peers]\n{peers}\n\
             [tls]\n\
             ca = \"certs/ca.pem\"\n\
             certificate = \"certs/{me}.pem\"\n\
             key = \"certs/{me}.key\"\n\n\
             {tables}"
        )
    }
}

fn text(args: &InitArgs, configurations: &[String]) -> String {
    let mut text = format!(
        "A group of {} on this host. Start each member in a terminal of its own, --new only this first time. The first start \
         needs all of them:\n\n",
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
