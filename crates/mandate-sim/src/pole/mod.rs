//! Election by score, whole, under simulation: detection, selection, installation and moves.

use mandate_proto::election::Figures;
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::machine::{Effects, Machine};
use mandate_proto::pole::installation::{Promised, RosterId, Safeguard, Stored};
use mandate_proto::pole::member::{Config, Effect, Event, Input, Member, Message};
use mandate_proto::time::Instant;
use mandate_proto::wire;

use crate::mutant::mutants;
use crate::subject::{self, Subject};

mod changed;
mod put_back;
pub(crate) mod register;
mod releases;
mod requests;
mod scenario;
mod shape;
mod watch;

pub use scenario::{Options, run};

/// How a simulated member is set up.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// The machine's own configuration.
    pub config: Config,
    /// What an operator makes of it, if one does.
    pub edited: Option<Config>,
    /// Whether that is another release, and no change of the group.
    pub is_upgraded: bool,
    /// Whether it is a process that is to be added to the group.
    pub joins: bool,
    /// What its application knows when it starts.
    pub figures: Figures,
    /// A bug put in on purpose.
    pub mutant: Option<Mutant>,
}

mutants! {
    IsolatedCandidates, "isolated-candidates", "pole",
        "also members that do not hear a quorum are candidates, as in the paper";
    PromiseNotDurable, "promise-not-durable", "pole", "promises are not on disk after a crash";
    ImpatientClaims, "impatient-claims", "pole",
        "a claim is given up after a fixed time that counts from before it was written down";
    OlderDiskIgnored, "older-disk-ignored", "pole",
        "nobody minds a member whose disk was put back to an older state";
    SilenceIgnored, "silence-ignored", "pole", "a leader that falls silent is not suspected";
    HintIsProof, "hint-is-proof", "pole",
        "a connection that breaks is taken for the death of whom it led to";
    NearestRoundTrip, "nearest-round-trip", "pole",
        "probes wait by the round trip to the nearest member";
    ValueOutlivesTerm, "value-outlives-term", "pole",
        "what a leader published is shown with the next leader";
    LateRequests, "late-requests", "pole",
        "what was asked of a leader in one term is done in a later one";
    NewBesideOld, "new-beside-old", "pole-releases",
        "members are changed although one is of a release that knows nothing of it";
}

impl Mutant {
    fn without(self) -> Option<Safeguard> {
        match self {
            Mutant::ImpatientClaims => Some(Safeguard::GrowingPatience),
            Mutant::OlderDiskIgnored => Some(Safeguard::WentBack),
            Mutant::SilenceIgnored => Some(Safeguard::Silence),
            Mutant::HintIsProof => Some(Safeguard::HintProbed),
            Mutant::NearestRoundTrip => Some(Safeguard::OwnRoundTrip),
            Mutant::ValueOutlivesTerm => Some(Safeguard::ValueOfTerm),
            Mutant::LateRequests => Some(Safeguard::RequestOfTerm),
            Mutant::NewBesideOld => Some(Safeguard::EveryoneSpeaks),
            Mutant::IsolatedCandidates | Mutant::PromiseNotDurable => None,
        }
    }
}

impl Subject for Member {
    type Message = Message;
    type Stable = Stored;
    type Event = Event;
    type Config = MemberConfig;

    fn boot(
        setup: &MemberConfig,
        boot: subject::Boot<Stored>,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) -> Self {
        let (config, mut boot) = boot.with(&setup.config, setup.edited.as_ref());
        boot.joins = setup.joins;
        boot.is_changed &= !setup.is_upgraded;
        // The other mutants act where the group is set up, or in the machine.
        if setup.mutant == Some(Mutant::PromiseNotDurable) {
            boot.stored = boot.stored.map(|_| Promised::ADMITTED.into());
        }
        let mut member = Member::start(config.clone(), boot, now, effects);
        member.handle(Input::Figures(setup.figures), now, effects);
        member
    }

    fn received(from: MemberId, message: Message) -> Input {
        Input::Received { from, message }
    }

    fn carried_out(event: &Event, is_willing: bool) -> Vec<Input> {
        requests::carried_out(event, is_willing)
    }

    fn held(&self, now: Instant) -> Option<Term> {
        self.mandate(now).map(|(term, _)| term)
    }

    /// Who speaks an older version knows of no other list than the first.
    fn speaks(&self) -> (u32, u32) {
        let oldest = match self.roster().id() {
            RosterId::SEED => wire::OLDEST,
            _ => wire::CHANGES_SINCE,
        };
        (oldest, self.config().speaks())
    }

    fn said_in(version: u32, message: Message) -> Option<Message> {
        let mut bytes = Vec::new();
        let can_be_said = wire::encode_as(version, &message, &mut bytes);
        can_be_said.then(|| wire::decode_as(version, &bytes).expect("what was written is read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixture::Mixture;
    use crate::storm::Setting;

    /// Members whose list or guarantee was edited are refused, and the others lead: a run without any leader would show nothing.
    #[test]
    fn a_group_in_which_the_lists_of_some_are_edited_has_leaders() {
        let edited = |seed: &u64| {
            let size = Setting::draw(*seed).size;
            let mixture = Mixture::draw(*seed, size);
            (0..size).any(|host| mixture.is_edited(host))
        };
        let reigns: Vec<_> = (0..1_000)
            .filter(edited)
            .map(|seed| run(seed, &Options::default(), None).reigns)
            .collect();
        let led = reigns.iter().filter(|reigns| **reigns > 0).count();
        assert!(reigns.len() > 80, "one run in eight: {}", reigns.len());
        assert!(led * 10 > reigns.len() * 9, "{led} of {} have leaders", reigns.len());
    }
}
