//! `mandate member`: who the members of a group are, and changing that while the group runs.
//!
//! A change is asked of a daemon and carried out by the group's leader. What takes time goes on in the group, whether this command waits
//! or not: a new member votes once it follows, and who is replaced leaves after that.

use clap::Subcommand;
use mandate_proto::identity::MemberId;

use crate::client::{ApiArgs, DaemonClient};
use crate::exit::Exit;
use crate::node::members_api::ChangeRequest;
use crate::output::Format;

mod show;
mod waiting;

use waiting::{Goal, Order, PatienceArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// Who votes, learns and observes, and where they are.
    List(ApiArgs),
    /// Add a member; it votes once it follows.
    ///
    /// The new member has a certificate of the group (`mandate certs`) and is started with `mandate node --join`. Its id is above all that
    /// members have had.
    #[command(after_help = "\
Example, on the host of p1, and on the new one at the end:
  mandate certs --group orders p4        # then copy ca.pem, p4.pem and p4.key to the new host
  mandate member add p4 10.0.0.4:7101 --no-wait
  mandate node --config p4.toml --join")]
    Add(AddArgs),
    /// Add a member that follows and never votes.
    Observe(AddArgs),
    /// Put a new member in the place of another, which may be dead.
    ///
    /// The other one leaves once the new one votes.
    #[command(after_help = "\
Example, if the host of p3 is gone:
  mandate certs --group orders p6        # then copy ca.pem, p6.pem and p6.key to the new host
  mandate node --config p6.toml --join   # there
  mandate member replace p3 p6 10.0.0.6:7101")]
    Replace(ReplaceArgs),
    /// Have a member that learns vote now: what the leader does by itself as soon as it can.
    Promote(PromoteArgs),
    /// Remove a member from the group.
    ///
    /// A leader that is removed hands leadership over first.
    Remove(RemoveArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// Its id, such as p4.
    member: MemberId,
    /// Where all other members reach it.
    #[arg(value_name = "HOST:PORT")]
    address: String,
    /// What people call it; no two members have the same name.
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    #[command(flatten)]
    patience: PatienceArgs,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReplaceArgs {
    /// Who leaves.
    old: MemberId,
    #[command(flatten)]
    new: AddArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PromoteArgs {
    /// Who learns.
    member: MemberId,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// Who leaves.
    member: MemberId,
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) fn run(command: MemberCommand, format: Format) -> anyhow::Result<Exit> {
    let (api, order, goal, patience) = match command {
        MemberCommand::List(api) => {
            show::list(&DaemonClient::new(&api)?.get::<Vec<_>>("/v1/members")?, format)?;
            return Ok(Exit::Success);
        }
        MemberCommand::Add(AddArgs { member, address, name, patience, api }) => {
            let change = ChangeRequest::Add { member: member.to_string(), address, name };
            (api, Order::Change(change), Goal::Votes(member), patience)
        }
        MemberCommand::Observe(AddArgs { member, address, name, patience, api }) => {
            let change = ChangeRequest::Observe { member: member.to_string(), address, name };
            (api, Order::Change(change), Goal::Observes(member), patience)
        }
        MemberCommand::Replace(ReplaceArgs { old, new }) => {
            let AddArgs { member, address, name, patience, api } = new;
            let (replaces, new) = (old.to_string(), member.to_string());
            let change = ChangeRequest::Replace { replaces, member: new, address, name };
            (api, Order::Change(change), Goal::Replaces { old, new: member }, patience)
        }
        MemberCommand::Promote(PromoteArgs { member, api }) => {
            let change = ChangeRequest::Promote { member: member.to_string() };
            (api, Order::Change(change), Goal::Votes(member), PatienceArgs::default())
        }
        MemberCommand::Remove(RemoveArgs { member, api }) => {
            (api, Order::Remove(member), Goal::Gone(member), PatienceArgs::default())
        }
    };
    waiting::carry_out(DaemonClient::new(&api)?, order, goal, patience, format)
}
