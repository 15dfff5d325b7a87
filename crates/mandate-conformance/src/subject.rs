//! What is tested: an engine, and how a group of it is made.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_runtime::Start;

/// Why a group could not be made.
pub type SetupError = Box<dyn std::error::Error + Send + Sync>;

/// An engine, set up in one way.
pub trait EngineUnderTest {
    /// What it is, for reports: `peer, leased, 1s`.
    fn name(&self) -> String;

    /// What its leaders may rely on, and the lease if they do.
    fn guarantee(&self) -> PeerGuarantee;

    /// Makes everything that members p1 to p`size` need, short of starting them: configurations,
    /// certificates, databases. The directory is empty, private, and removed in the end.
    fn group(&self, size: u32, directory: &Path) -> Result<Box<dyn Members>, SetupError>;

    /// Why its handle cannot do this, if it cannot: claims that need it do not apply.
    fn lacks(&self, _ability: Ability) -> Option<&'static str> {
        None
    }

    /// How long anything may take that must happen. Not a measure of speed: a host that does much else
    /// must not be taken for an engine that does nothing.
    fn patience(&self) -> Duration {
        Duration::from_secs(120)
    }
}

/// What not every engine can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Hand leadership to a member that is named.
    Transfer,
    /// Know who leads while that is another.
    KnowTheLeader,
    /// Publish a value with the term.
    Publish,
    /// Keep a second process from running as a member that runs.
    RunOnce,
    /// Keep two from leading at once. Where that is not promised, there are no terms, and nothing is judged.
    Exclude,
}

/// How the members of one group are started. What it holds (servers, relays) ends when it is dropped.
pub trait Members {
    /// The command that starts a member, which then speaks the [`protocol`](crate::protocol); the harness
    /// adds arguments to it.
    fn command(&self, member: MemberId, start: Start) -> Command;

    /// The same member once more, while the first one runs: with the same state, but at liberty to run,
    /// on other ports if it has any.
    fn twin(&self, member: MemberId) -> Command {
        self.command(member, Start::Stored)
    }

    /// The command that runs another where the member leads, such as `mandate run`: the harness adds arguments of
    /// `mandate run`, `--` and that other. `None` if there is none.
    fn wrapper(&self, _member: MemberId, _start: Start) -> Option<Command> {
        None
    }

    /// What to put before the command to have it run somewhere else, such as `ip netns exec NAME`. It
    /// must *become* the command, so that signals reach that.
    fn place(&self, _member: MemberId) -> Vec<OsString> {
        Vec::new()
    }

    /// What members reach each other by, or their database; `None` if that cannot be cut here.
    fn cables(&self) -> Option<&dyn NetworkFaults> {
        None
    }
}

/// What members elect by, to be cut.
pub trait NetworkFaults {
    /// From now on nothing gets to a member or from it.
    fn isolate(&self, member: MemberId);

    /// Everything gets everywhere again.
    fn heal(&self);
}

/// The command, run where its member belongs.
pub(crate) fn placed(members: &dyn Members, member: MemberId, command: Command) -> Command {
    let place = members.place(member);
    let Some((program, arguments)) = place.split_first() else { return command };
    let mut placed = Command::new(program);
    placed.args(arguments).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => placed.env(name, value),
            None => placed.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        placed.current_dir(directory);
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Elsewhere(&'static [&'static str]);

    impl Members for Elsewhere {
        fn command(&self, member: MemberId, _: Start) -> Command {
            let mut command = Command::new("actor");
            command.arg(member.to_string()).env("KEY", "value");
            command
        }

        fn place(&self, _: MemberId) -> Vec<OsString> {
            self.0.iter().map(OsString::from).collect()
        }
    }

    #[test]
    fn a_command_runs_where_its_member_belongs_with_all_that_it_was_given() {
        let shown = |place| {
            let members = Elsewhere(place);
            let command = members.command(MemberId::new(2), Start::New);
            format!("{:?}", placed(&members, MemberId::new(2), command))
        };
        assert_eq!(shown(&[]), r#"KEY="value" "actor" "p2""#);
        let namespace = &["ip", "netns", "exec", "n2"];
        assert_eq!(shown(namespace), r#"KEY="value" "ip" "netns" "exec" "n2" "actor" "p2""#);
    }
}
