//! One seed: a storm of faults and of claims by anyone at any time, then healing and a demand that
//! someone is installed.

use core::time::Duration;
use std::io::Write;

use mandate_proto::identity::Term;
use mandate_proto::pole::installation::{
    Config, Contact, Event, Input, Installation, MemberChange, PeerGuarantee, Reason, Roster,
    WhyNoVote,
};
use mandate_proto::time::Instant;

use super::invariants::changes_stay::{self, ChangesStay};
use super::invariants::holders::Holders;
use super::invariants::one_leader_per_term::{self, OneLeaderPerTerm};
use super::invariants::one_mandate_at_a_time;
use super::invariants::terms_rise::{self, TermsRise};
use super::mutated::Mutated;
use super::{MemberConfig, Mutant};
use crate::changes::Changes;
use crate::clock::HostClocks;
use crate::first_start::FirstStart;
use crate::host::{host_of, member};
use crate::mixture::{Mixture, Version};
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::scenario::{Run, Scenario, Watched};
use crate::storm::{self, Happening, Setting, Storm};
use crate::subject::{Moment, Observation};
use crate::time::SimTime;
use crate::verdict::Outcome;
use crate::watch::{Broken, Invariants, Watch};
use crate::world::World;

/// How to run a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to put back on purpose.
    pub mutant: Option<Mutant>,
    /// Whether members come and go.
    pub changes: bool,
    /// Whether members find out by themselves whether they are new.
    pub auto: bool,
}

/// What is allowed for clocks that are off by a tenth of a per cent, twice that and a little; and for
/// those of some runs, which are off by 5 %.
const ALLOWANCES_PER_MILLE: [u16; 2] = [4, 100];

/// A claim is waited for twice as long with each in succession that came to nothing, this often at most.
const MAX_DOUBLINGS: u32 = 3;

/// Runs a seed; `trace` receives it line by line.
pub fn run(seed: u64, options: &Options, trace: Option<&mut dyn Write>) -> Outcome {
    let mut setting = Setting::draw(seed);
    let mut random = Random::new(seed ^ 0xC1A1, Stream::Setting);
    // In a third of the runs disks are lost one after the other, and messages come very late.
    let lossy = random.chance(0.33);
    if lossy {
        setting.size = setting.size.min(5);
        setting.clocks.truncate(setting.size);
        setting.rough = storm::late_links(&mut random, setting.detect);
    }
    let changes = match options.changes {
        true => Changes::draw(seed, &mut setting),
        false => Changes::default(),
    };
    let first_start = match options.auto {
        true => FirstStart::draw(seed, &mut setting),
        false => FirstStart::default(),
    };
    let drifting = random.chance(0.3);
    if drifting {
        let mut drift = || random.below(100_000_001) as i64 - 50_000_000;
        setting.clocks = setting.clocks.iter().map(|_| HostClocks::new(drift())).collect();
    }
    let allowance_per_mille = match options.mutant {
        Some(Mutant::NoAllowance) => 0,
        _ => ALLOWANCES_PER_MILLE[usize::from(drifting)],
    };
    // A lease that is not much longer than a claim takes cannot be kept on calm days either.
    let (delay, machinery) = (setting.calm.max_delay, setting.machinery);
    let lease = setting.detect + (delay + machinery.write_time + machinery.lateness) * 4;
    let least = (delay + machinery.write_time + machinery.lateness) * 5;
    let guarantee = if random.chance(0.3) {
        PeerGuarantee::Fenced
    } else {
        PeerGuarantee::Leased { lease, allowance_per_mille }
    };
    let hosts = changes.hosts(setting.size);
    let mut mixture = Mixture::draw(seed, hosts);
    if options.changes {
        mixture = mixture.alike();
    }
    let first = setting.size;
    let hosts = setting.clocks.iter().enumerate().map(|(host, clock)| {
        let retry = setting.interval;
        let give_up = retry * 4;
        let config = |version| Config {
            me: member(host),
            members: match options.changes {
                true => (0..first).map(member).collect(),
                false => mixture.members(host, version),
            },
            contacts: Default::default(),
            guarantee: mixture.guarantee((host, version), guarantee, lease, least),
            retry,
            give_up,
            without: options.mutant.and_then(Mutant::without),
        };
        let is_edited = mixture.is_edited(host) || mixture.has_two_lists();
        let edited = is_edited.then(|| config(Version::Edited));
        let config = config(Version::First);
        let (joins, is_auto) = (changes.is_spare(host), first_start.is_auto(host));
        (MemberConfig { config, edited, joins, is_auto, mutant: options.mutant }, clock.clone())
    });
    let watch = Watch::new(Terms::new(changes.hosts(first), guarantee), trace);
    setting.machinery.write_time = mixture.slow_disks.unwrap_or(setting.machinery.write_time);
    let mut world = World::new(seed, hosts, setting.rough, setting.machinery, watch);
    if options.mutant == Some(Mutant::AnsweredBeforeWritten) {
        world.acknowledge_early();
    }
    let leased = guarantee != PeerGuarantee::Fenced;
    let (lease, mutant, holders) = (mixture.longest(lease), options.mutant, Holders::default());
    let case = Case {
        lossy,
        leased,
        lease,
        shortest: least.min(lease),
        holders,
        mixture,
        mutant,
        random,
        setting,
        changes: options.changes.then_some(changes),
        first_start,
    };
    Run { world, case }.play(seed)
}

struct Case {
    setting: Setting,
    random: Random,
    /// Disks are lost one after the other.
    lossy: bool,
    leased: bool,
    /// The longest that any member asks for.
    lease: Duration,
    /// The shortest lease that any member is set up with.
    shortest: Duration,
    holders: Holders,
    mixture: Mixture,
    mutant: Option<Mutant>,
    /// Who comes and goes, in runs in which members do.
    changes: Option<Changes>,
    /// How members are started for the first time.
    first_start: FirstStart,
}

impl Scenario for Case {
    type Subject = Installation;
    type Invariants = Terms;

    fn storm(&mut self, _: &mut Watched<'_, Self>, seed: u64) -> Storm<Input> {
        let mut faults = match self.lossy {
            true => storm::lost_disks(&mut self.random, &self.setting),
            false => storm::faults(seed, &self.setting),
        };
        faults.extend(self.mixture.faults(seed, &self.setting));
        let mut happenings: Vec<_> = self
            .first_start
            .faults(faults)
            .into_iter()
            .map(|(at, fault)| (at, Happening::Fault(fault.with_counted_suspension())))
            .collect();
        let (size, storm) = (self.setting.size as u64, self.setting.storm);
        for _ in 0..20 + self.random.below(60) {
            let at = SimTime::ZERO + self.random.between(Duration::ZERO, storm);
            let host = self.random.below(size) as usize;
            let input = match self.random.below(20) {
                0 | 1 => Input::Resign,
                2..=5 => Input::Transfer { to: member(self.random.below(size) as usize) },
                _ => Input::Claim { epoch: Term::new(1) },
            };
            happenings.push((at, Happening::Tell(host, input)));
        }
        let count = self.random.below(6);
        happenings.extend(storm::orderly_ends(&mut self.random, &self.setting, count, Input::Stop));
        if let Some(changes) = &self.changes {
            happenings.extend(changes.happenings(Input::Change));
            // Those that were added claim, too.
            let hosts = changes.hosts(self.setting.size) as u64;
            for _ in 0..60 {
                let at = SimTime::ZERO + self.random.between(self.setting.detect, storm);
                let host = self.random.below(hosts) as usize;
                happenings.push((at, Happening::Tell(host, Input::Claim { epoch: Term::new(1) })));
            }
        }
        Storm { happenings, leader_faults: Vec::new(), lasts: storm }
    }

    /// Under leases, asks every member whether its mandate holds.
    fn check(run: &mut Run<'_, Self>) {
        if !run.case.leased {
            return;
        }
        let world = &run.world;
        let terms = &world.observer.invariants;
        let until = |host, machine: &Installation, now| terms.mandate(host, machine, now)?.1;
        run.case.holders.look(world, until);
        let mutated = &terms.mutated;
        let answers = |host| match run.case.mutant {
            Some(Mutant::CachedCheck) => mutated.flag(host),
            Some(Mutant::DeadlineFromReply) => mutated.by_reply(host, world.local_time(host)),
            _ => run.holds(host),
        };
        if let Err(what) =
            one_mandate_at_a_time::check_all(run.world.size(), answers, run.case.holders.orphans())
        {
            let what = format!("{what} (at {} s)", run.world.now());
            run.world.observer.fail(one_mandate_at_a_time::NAME, what);
        }
    }

    fn heal(run: &mut Run<'_, Self>) {
        let (calm, settlement) = run.case.mixture.healing(&run.case.setting);
        run.calm_down_with_disks(calm, settlement);
    }

    /// A quorum that has its disks must be able to install one of its members, once the leases of the storm have run out.
    fn demand(run: &mut Run<'_, Self>) {
        let write_time = run.case.setting.machinery.write_time;
        let leases = run.case.lease.mul_f64(1.06) + write_time * 4;
        run.run_until(run.world.last_arrival() + leases);
        if run.case.changes.is_some() {
            return run.demand_of_a_changed_group();
        }
        run.demand_that_nobody_is_unsure();
        // By now everyone who can has recovered.
        let votes = |host: &usize| {
            run.case.mixture.agrees(*host) && run.world.machine(*host).is_some_and(|m| m.has_vote())
        };
        let voters: Vec<_> = (0..run.case.setting.size).filter(votes).collect();
        let kept = run.world.observer.invariants.terms_rise.kept();
        let quorum = run.case.setting.size / 2 + 1;
        // A human who says that a disk was lost says that there was a group: members that are unsure then know of nothing.
        let hosts = 0..run.case.setting.size;
        let has_lost = |host| run.world.observer.invariants.terms_rise.has_lost(host);
        let is_lost_by_word = run.case.first_start.by_word(hosts).any(has_lost);
        // Who differs answers no questions.
        let can_recover = kept >= quorum && run.case.mixture.all_agree() && !is_lost_by_word;
        if can_recover && voters.len() < run.case.setting.size && !run.world.observer.is_done() {
            let what = format!("{} of {} have a vote", voters.len(), run.case.setting.size);
            run.world.observer.stall("recovery without a disk", what);
        }
        if run.world.observer.is_done() || voters.len() < quorum {
            return;
        }
        // A claim of the storm may still stand in the way until it is given up, and ours may be
        // given up meanwhile and made again; then promises may have to run out.
        let host = run.case.random.pick(&voters);
        run.demand_that_is_installed(host);
    }
}

impl Run<'_, Case> {
    /// Whether the mandate of the member on a host holds now, by its own clock.
    fn holds(&self, host: HostIndex) -> bool {
        let now = self.world.local_time(host);
        let mandate = |machine| self.world.observer.invariants.mandate(host, machine, now);
        self.world.machine(host).and_then(mandate).is_some()
    }

    fn is_led(&self) -> bool {
        (0..self.world.size()).any(|host| self.holds(host))
    }

    /// How long it may take until a member is installed that claims again and again.
    fn patience(&self) -> Duration {
        let given_up = self.case.lease.max(self.case.setting.interval * 4);
        // After claims that came to nothing it is given up later.
        let fruitless =
            self.world.observer.invariants.fruitless.iter().copied().max().unwrap_or_default();
        let growth = 1 << fruitless.min(MAX_DOUBLINGS);
        (given_up * (growth + 1) + self.case.lease).mul_f64(1.06) + self.step() * 6
    }

    /// What a message, a write and a wake-up take at most on calm days.
    fn step(&self) -> Duration {
        let machinery = self.case.setting.machinery;
        self.case.setting.calm.max_delay + machinery.lateness + machinery.write_time
    }

    /// By now every member that all others can answer knows whether it is new, as far as anyone can know.
    fn demand_that_nobody_is_unsure(&mut self) {
        let is_unsure = |host: &HostIndex| {
            let no_vote = self.world.machine(*host).and_then(Installation::no_vote);
            no_vote.is_some_and(|no_vote| no_vote.why == WhyNoVote::Unsure)
        };
        let unsure = (0..self.world.size()).filter(is_unsure).count();
        if unsure > 0 && self.case.mixture.all_agree() && !self.world.observer.is_done() {
            let what = format!("{unsure} do not know whether they are new");
            self.world.observer.stall("first start without a human", what);
        }
    }

    /// A member that claims is installed within the time that claims of the storm may stand in its way.
    fn demand_that_is_installed(&mut self, host: HostIndex) {
        let (delay, machinery) = (self.case.setting.calm.max_delay, self.case.setting.machinery);
        let patience = self.patience();
        let began = self.world.now();
        let until = began + patience;
        while self.world.now() < until && !self.world.observer.is_done() && !self.is_led() {
            self.world.tell(host, Input::Claim { epoch: Term::new(1) });
            let now = self.world.now();
            // A member claims again as soon as it has lost. While it claims, it is deaf to this.
            let pause = (delay + machinery.lateness) * 3;
            self.run_until(now + pause);
        }
        let took = self.world.now() - began;
        self.world.observer.took(took, patience);
        if !self.world.observer.is_done() && !self.is_led() {
            let what = format!("nobody was installed {patience:?} after the leases had run out");
            self.world.observer.stall("installation", what);
        }
    }

    /// The newest list that any member knows.
    fn newest_roster(&self) -> Option<Roster> {
        let rosters = (0..self.world.size()).filter_map(|host| self.world.machine(host));
        rosters.map(|machine| machine.roster()).max_by_key(|roster| roster.id()).cloned()
    }

    /// A quorum of the newest list that has its disks must be able to install one of them, who can change it once more.
    fn demand_of_a_changed_group(&mut self) {
        let Some(roster) = self.newest_roster() else { return };
        let kept = |host: &HostIndex| {
            let never = |why| {
                matches!(
                    why,
                    WhyNoVote::Lost | WhyNoVote::Outdated | WhyNoVote::WentBack | WhyNoVote::New
                )
            };
            let machine = self.world.machine(*host);
            !self.world.observer.invariants.terms_rise.has_lost(*host)
                && machine.is_some_and(|it| it.no_vote().is_none_or(|no_vote| !never(no_vote.why)))
        };
        let voters: Vec<_> = roster.voters().map(host_of).filter(kept).collect();
        if voters.len() < roster.quorum() || self.world.observer.is_done() {
            return;
        }
        // A member with the newest list tells it to the others when it claims.
        let is_told = |host: &HostIndex| {
            let machine = self.world.machine(*host);
            machine.is_some_and(|it| it.has_vote() && it.roster().id() == roster.id())
        };
        let told: Vec<_> = voters.into_iter().filter(is_told).collect();
        if told.is_empty() {
            return;
        }
        let host = self.case.random.pick(&told);
        self.demand_that_is_installed(host);
        // Where writes take as long as leases are, a change costs the leader its lease.
        if self.case.leased && self.step() * 4 > self.case.shortest {
            return;
        }
        let bound = self.case.lease + self.step() * 40;
        self.demand_a_change(host, bound);
    }

    /// One more member, that there is no process of: it observes, and costs nothing. A leader that was replaced and does not know it
    /// learns it by that, and so a leader may have to be installed first.
    fn demand_a_change(&mut self, claimant: HostIndex, bound: Duration) {
        let settled = self.world.observer.invariants.changes.newest_settled();
        let is_done = |run: &Self| run.world.observer.invariants.changes.newest_settled() > settled;
        let began = self.world.now();
        let bound = bound + self.patience();
        let member = member(self.world.size());
        while !is_done(self) && !self.world.observer.is_done() && self.world.now() < began + bound {
            if !self.is_led() {
                self.world.tell(claimant, Input::Claim { epoch: Term::new(1) });
            }
            for host in 0..self.world.size() {
                let contact = Contact::default();
                self.world.tell(host, Input::Change(MemberChange::Observe { member, contact }));
            }
            let now = self.world.now();
            self.run_until(now + self.step() * 3);
        }
        let took = self.world.now() - began;
        self.world.observer.took(took, bound);
        if !is_done(self) {
            let what = format!("a change was not settled within {bound:?}");
            self.world.observer.stall("a list is changed", what);
        }
    }
}

/// What must hold of terms.
struct Terms {
    one_leader: OneLeaderPerTerm,
    terms_rise: TermsRise,
    /// The term that each host was told it holds, by the present incarnation of its member.
    installed: Vec<Option<Term>>,
    /// How many claims of each member found no quorum, in its present incarnation.
    fruitless: Vec<u32>,
    changes: ChangesStay,
    mutated: Mutated,
}

impl Terms {
    fn new(size: usize, guarantee: PeerGuarantee) -> Self {
        Terms {
            one_leader: OneLeaderPerTerm::default(),
            terms_rise: TermsRise::new(size),
            installed: vec![None; size],
            fruitless: vec![0; size],
            changes: ChangesStay::default(),
            mutated: Mutated::new(size, guarantee),
        }
    }
}

impl Terms {
    /// The term that a member holds, and until when: nobody acts on it before the member has said so, and a member that decides alone
    /// says so only when its own promise is on disk.
    fn mandate(
        &self,
        host: HostIndex,
        machine: &Installation,
        now: Instant,
    ) -> Option<(Term, Option<Instant>)> {
        machine.mandate(now).filter(|(term, _)| self.installed[host] == Some(*term))
    }
}

impl Invariants<Installation> for Terms {
    fn check(
        &mut self,
        moment: Moment,
        what: &Observation<'_, Installation>,
    ) -> Result<(), Broken> {
        self.mutated.observe(moment, what);
        match what {
            Observation::Told(Event::Installed { term }) => {
                self.installed[moment.host] = Some(*term);
                let checked = self.one_leader.check(moment.host, *term);
                checked.map_err(|what| (one_leader_per_term::NAME, what))?;
                let checked = self.changes.installed(moment.host, *term);
                return checked.map_err(|what| (changes_stay::NAME, what));
            }
            Observation::Told(Event::RosterChanged { roster }) => {
                let checked = self.changes.changed(moment.host, roster);
                return checked.map_err(|what| (changes_stay::NAME, what));
            }
            Observation::Told(Event::Settled { roster }) => {
                let term = self.installed[moment.host].unwrap_or(Term::NONE);
                self.changes.settled(term, *roster);
            }
            Observation::Told(Event::Lost { reason: Reason::NoQuorum, .. }) => {
                self.fruitless[moment.host] += 1;
            }
            Observation::Started(boot) => {
                self.fruitless[moment.host] = 0;
                self.installed[moment.host] = None;
                self.changes.started(moment.host, boot.stored.as_ref());
            }
            _ => {}
        }
        self.terms_rise.check(moment, what).map_err(|what| (terms_rise::NAME, what))
    }

    fn reigns(&self) -> u64 {
        self.one_leader.terms() as u64
    }
}
