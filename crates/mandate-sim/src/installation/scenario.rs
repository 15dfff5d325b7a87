//! One seed: a storm of faults and of claims by anyone at any time, then healing and a demand that
//! someone is installed.

use core::time::Duration;
use std::io::Write;

use mandate_proto::identity::Term;
use mandate_proto::pole::installation::{
    Config, Event, Input, Installation, PeerGuarantee, Reason,
};

use super::invariants::holders::Holders;
use super::invariants::one_leader_per_term::{self, OneLeaderPerTerm};
use super::invariants::one_mandate_at_a_time;
use super::invariants::terms_rise::{self, TermsRise};
use super::mutated::Mutated;
use super::{MemberConfig, Mutant};
use crate::clock::HostClocks;
use crate::host::member;
use crate::mixture::{Mixture, Version};
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
    let mixture = Mixture::draw(seed, setting.size);
    let hosts = setting.clocks.iter().enumerate().map(|(host, clock)| {
        let retry = setting.interval;
        let give_up = retry * 4;
        let config = |version| Config {
            me: member(host),
            members: mixture.members(host, version),
            contacts: Default::default(),
            guarantee: mixture.guarantee((host, version), guarantee, lease, least),
            retry,
            give_up,
            without: options.mutant.and_then(Mutant::without),
        };
        let is_edited = mixture.is_edited(host) || mixture.has_two_lists();
        let edited = is_edited.then(|| config(Version::Edited));
        let config = config(Version::First);
        (MemberConfig { config, edited, mutant: options.mutant }, clock.clone())
    });
    let watch = Watch::new(Terms::new(setting.size, guarantee), trace);
    setting.machinery.write_time = mixture.slow_disks.unwrap_or(setting.machinery.write_time);
    let mut world = World::new(seed, hosts, setting.rough, setting.machinery, watch);
    if options.mutant == Some(Mutant::AnsweredBeforeWritten) {
        world.acknowledge_early();
    }
    let leased = guarantee != PeerGuarantee::Fenced;
    let (lease, mutant, holders) = (mixture.longest(lease), options.mutant, Holders::default());
    Run { world, case: Case { lossy, leased, lease, holders, mixture, mutant, random, setting } }
        .play(seed)
}

struct Case {
    setting: Setting,
    random: Random,
    /// Disks are lost one after the other.
    lossy: bool,
    leased: bool,
    /// The longest that any member asks for.
    lease: Duration,
    holders: Holders,
    mixture: Mixture,
    mutant: Option<Mutant>,
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
        let mut happenings: Vec<_> = faults
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
        Storm { happenings, leader_faults: Vec::new(), lasts: storm }
    }

    /// Under leases, asks every member whether its mandate holds.
    fn check(run: &mut Run<'_, Self>) {
        if !run.case.leased {
            return;
        }
        let until = |_, machine: &Installation, now| machine.mandate(now).and_then(|it| it.1);
        run.case.holders.look(&run.world, until);
        let world = &run.world;
        let mutated = &world.observer.invariants.mutated;
        let answers = |host| match run.case.mutant {
            Some(Mutant::CachedCheck) => mutated.flag(host),
            Some(Mutant::DeadlineFromReply) => mutated.by_reply(host, world.local_time(host)),
            _ => one_mandate_at_a_time::holds(world, host),
        };
        if let Err(what) = one_mandate_at_a_time::check_all(
            run.case.setting.size,
            answers,
            run.case.holders.orphans(),
        ) {
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
        let (delay, machinery) = (run.case.setting.calm.max_delay, run.case.setting.machinery);
        let leases = run.case.lease.mul_f64(1.06) + machinery.write_time * 4;
        run.run_until(run.world.last_arrival() + leases);
        // By now everyone who can has recovered.
        let votes = |host: &usize| {
            run.case.mixture.agrees(*host) && run.world.machine(*host).is_some_and(|m| m.has_vote())
        };
        let voters: Vec<_> = (0..run.case.setting.size).filter(votes).collect();
        let kept = run.world.observer.invariants.terms_rise.kept();
        let quorum = run.case.setting.size / 2 + 1;
        // Who differs answers no questions.
        let can_recover = kept >= quorum && run.case.mixture.all_agree();
        if can_recover && voters.len() < run.case.setting.size && !run.world.observer.is_done() {
            let what = format!("{} of {} have a vote", voters.len(), run.case.setting.size);
            run.world.observer.stall("recovery without a disk", what);
        }
        if run.world.observer.is_done() || voters.len() < quorum {
            return;
        }
        // A claim of the storm may still stand in the way until it is given up, and ours may be
        // given up meanwhile and made again; then promises may have to run out.
        let given_up = run.case.lease.max(run.case.setting.interval * 4);
        // After claims that came to nothing it is given up later.
        let fruitless =
            run.world.observer.invariants.fruitless.iter().copied().max().unwrap_or_default();
        let growth = 1 << fruitless.min(MAX_DOUBLINGS);
        let patience = (given_up * (growth + 1) + run.case.lease).mul_f64(1.06);
        let patience = patience + (delay + machinery.lateness + machinery.write_time) * 6;
        let began = run.world.now();
        let until = began + patience;
        let host = run.case.random.pick(&voters);
        while run.world.now() < until && !run.world.observer.is_done() && !run.is_led() {
            run.world.tell(host, Input::Claim { epoch: Term::new(1) });
            let now = run.world.now();
            // A member claims again as soon as it has lost. While it claims, it is deaf to this.
            let pause = (delay + machinery.lateness) * 3;
            run.run_until(now + pause);
        }
        let took = run.world.now() - began;
        run.world.observer.took(took, patience);
        if !run.world.observer.is_done() && !run.is_led() {
            let what = format!("nobody was installed {patience:?} after the leases had run out");
            run.world.observer.stall("installation", what);
        }
    }
}

impl Run<'_, Case> {
    fn is_led(&self) -> bool {
        (0..self.case.setting.size).any(|host| one_mandate_at_a_time::holds(&self.world, host))
    }
}

/// What must hold of terms.
struct Terms {
    one_leader: OneLeaderPerTerm,
    terms_rise: TermsRise,
    /// How many claims of each member found no quorum, in its present incarnation.
    fruitless: Vec<u32>,
    mutated: Mutated,
}

impl Terms {
    fn new(size: usize, guarantee: PeerGuarantee) -> Self {
        Terms {
            one_leader: OneLeaderPerTerm::default(),
            terms_rise: TermsRise::new(size),
            fruitless: vec![0; size],
            mutated: Mutated::new(size, guarantee),
        }
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
                let checked = self.one_leader.check(moment.host, *term);
                return checked.map_err(|what| (one_leader_per_term::NAME, what));
            }
            Observation::Told(Event::Lost { reason: Reason::NoQuorum, .. }) => {
                self.fruitless[moment.host] += 1;
            }
            Observation::Started(_) => self.fruitless[moment.host] = 0,
            _ => {}
        }
        self.terms_rise.check(moment, what).map_err(|what| (terms_rise::NAME, what))
    }

    fn reigns(&self) -> u64 {
        self.one_leader.terms() as u64
    }
}
