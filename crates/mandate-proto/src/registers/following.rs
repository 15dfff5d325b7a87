//! Joining, beating, watching, taking over.

use super::config::{Config, MAX_LEASE, Part, SqlGuarantee};
use super::interface::{Effect, Event, Loss, Reason, Reign};
use super::statement::{ControlState, Holder, PROTOCOL, Published, Statement, StayId};
use super::{Claim, Fx, Leading, Leaving, Member, Owed, Step};
use crate::election::{Candidacy, Figures};
use crate::identity::Term;
use crate::oracle::{Leniency, View};
use crate::score::Score;
use crate::time::Instant;
use core::time::Duration;

impl Member {
    /// What this member is worth as a leader; `None` if it is no candidate.
    pub fn score(&self) -> Option<Score> {
        self.score
    }

    pub(super) fn is_leased(&self) -> bool {
        self.config.guarantee == SqlGuarantee::Leased
    }

    pub(super) fn next_as_follower(&self) -> Option<(Instant, Step)> {
        let look = (self.next_look, Step::Look);
        // Before anything is written, the row has to be one that we understand.
        if !self.watch.has_looked || self.watch.is_foreign || self.config.part == Part::Observer {
            return Some(look);
        }
        if self.incarnation.is_none() {
            return match self.config.part {
                Part::Candidate => Some(self.next_join_or(look)),
                Part::Role | Part::Observer => Some(look),
            };
        }
        let is_next = self.watch.rank_of(self.config.me).is_some();
        let takeover = self.next_takeover().map(|(at, reason)| {
            // Who is not among the first finds most of the time that one of them was.
            let has_looked = is_next || reason == Reason::Lapsed || self.looked >= at;
            (at, if has_looked { Step::Takeover(reason) } else { Step::Look })
        });
        let beats = self.config.part == Part::Candidate;
        let heartbeat = beats.then_some((self.next_heartbeat, Step::Heartbeat));
        // Of what is due at once, the first: a takeover looks as well, and so does a heartbeat.
        takeover.into_iter().chain(heartbeat).chain([look]).min_by_key(|(at, _)| *at)
    }

    /// When to join. Not while a leader with another guarantee leads: who relies on leases could be surprised by one who
    /// does not, and the other way round. A lease ends by itself; without one, the row has to be vacated.
    fn next_join_or(&self, look: (Instant, Step)) -> (Instant, Step) {
        let join = (self.next_join, Step::Join);
        match (self.watch.differs(&self.config), self.watch.leader_until(&self.config)) {
            (None, _) => join,
            (Some((_, SqlGuarantee::Leased)), Some((_, _, until))) if until <= look.0 => {
                (self.next_join.max(until), Step::Join)
            }
            (Some(_), _) => look,
        }
    }

    /// When to take the row over as it stands, and why.
    fn next_takeover(&self) -> Option<(Instant, Reason)> {
        let seen = self.watch.seen()?;
        let row = &seen.row;
        self.score?;
        self.next_term()?;
        let round = self.watch.round(&self.config);
        let stagger = self.config.stagger(round);
        let turn = |jitter: Duration| match self.watch.rank_of(self.config.me) {
            Some(rank) => stagger.saturating_mul(rank as u32),
            None => stagger.saturating_mul(row.published.successors.len() as u32 + 1) + jitter,
        };
        let (at, reason) = match row.leader {
            // Who was named has a round to see it: everyone looks once a round.
            None if row.reason == Reason::Transferred && !self.is_named(row) => {
                (seen.since + round + turn(seen.jitter / 4), row.reason)
            }
            // Most of the time there are few who could, and nothing to wait for.
            None => (seen.since + turn(seen.jitter / 4), row.reason),
            // Ours, and it has lapsed: nobody else has led since, if it still stands.
            Some(leader) if Some(leader) == self.me() && !seen.went_back => {
                (seen.since, Reason::Lapsed)
            }
            // It counts on no lease, so that none can run out, and we would rely on being alone.
            Some(_) if self.is_leased() && row.published.guarantee == SqlGuarantee::Fenced => {
                return None;
            }
            Some(_) => {
                let lapses = seen.since + self.config.wait(row.published.lease);
                match self.watch.gone_at() {
                    Some(gone) if gone < lapses => (gone + turn(seen.jitter), Reason::SessionGone),
                    _ => (lapses + turn(seen.jitter), Reason::Silence),
                }
            }
        };
        // The named successor does not leave it to the others.
        let abstains = self.abstains_until.filter(|_| !self.is_named(row));
        let not_before = abstains.into_iter().chain(self.watch.lost_until());
        Some((not_before.fold(at, Instant::max), reason))
    }

    pub(super) fn join(&self) -> Statement {
        Statement::Join {
            member: self.config.me,
            score: self.score,
            was_evicted: self.was_evicted,
            first: self.config.first(),
            floor: self.watch.highest.max(self.given_up),
        }
    }

    pub(super) fn heartbeat(&self) -> Option<Statement> {
        Some(Statement::Heartbeat { me: self.me()?, score: self.score })
    }

    /// Above all that were ever seen. When terms have run out, better no leader than a term used twice.
    fn next_term(&self) -> Option<Term> {
        self.watch.highest.max(self.given_up).next()
    }

    pub(super) fn take_over(&self, reason: Reason) -> Option<Statement> {
        let row = self.watch.row()?;
        let term = self.next_term()?;
        let round = self.watch.round(&self.config).max(self.config.round);
        let others = row.published.successors.iter().filter(|id| *id != self.config.me);
        let (lease, guarantee) = (self.config.lease(round), self.config.guarantee);
        let publish = Published { successors: others.collect(), round, lease, guarantee };
        let (me, was, of) = (self.me()?, row.version, row.leader);
        let value = self.config.value.clone();
        Some(Statement::Takeover { me, was, of, term, reason, publish, value })
    }

    /// We are in the group.
    pub(super) fn joined(&mut self, incarnation: StayId, now: Instant, effects: &mut Fx) {
        self.incarnation = Some(incarnation);
        effects.push(Effect::Tell(Event::Joined { incarnation }));
        // Members that started together need not beat together.
        self.next_heartbeat = now + self.chance.below(self.watch.round(&self.config));
    }

    /// Our row is gone, although we live.
    pub(super) fn evicted(&mut self, now: Instant, effects: &mut Fx) {
        if let Some(incarnation) = self.incarnation.take() {
            self.was_evicted = true;
            effects.push(Effect::Tell(Event::Evicted { incarnation }));
            let round = self.watch.round(&self.config);
            self.next_join = now + self.chance.below(round / 4);
        }
    }

    pub(super) fn joined_elsewhere(&mut self, incarnation: Option<StayId>, effects: &mut Fx) {
        if self.config.part == Part::Role && self.incarnation != incarnation {
            self.give_back(Reason::Resigned, effects);
            self.incarnation = incarnation;
        }
    }

    pub(super) fn session_gone(&mut self, term: Term, now: Instant) {
        if self.watch.session_gone(term, now) {
            // Under leases, too, it is good to know now which beat was the last.
            self.look_now(now);
        }
    }

    /// Looks at once, or as soon as the statement under way, which may have looked before, has ended.
    pub(super) fn look_now(&mut self, now: Instant) {
        self.next_look = now;
        self.looks_again = !self.control.is_free();
    }

    /// Sees a control row that an answer showed.
    pub(super) fn see(&mut self, row: ControlState, now: Instant, effects: &mut Fx) {
        let published = &row.published;
        let is_foreign =
            row.protocol != PROTOCOL || published.lease > MAX_LEASE || published.round > MAX_LEASE;
        if is_foreign {
            if !self.watch.is_foreign {
                effects.push(Effect::Tell(Event::Mismatched { protocol: row.protocol }));
            }
            self.watch.is_foreign = true;
            self.watch.has_looked = true;
            self.owed = None;
            return self.lose(Loss::Mismatched, effects);
        }
        self.watch.is_foreign = false;
        let jitter = self.chance.below(published.round.min(self.config.max_round));
        let differed = self.watch.differs(&self.config);
        let news = self.watch.see(row, jitter, &self.config, now);
        self.tell_news(news.before, &row, effects);
        if news.went_back
            && let Some(before) = news.before
        {
            let (from, to) = (before.version, Some(row.version));
            effects.push(Effect::Tell(Event::WentBack { from, to }));
        } else if news.was_remade {
            effects.push(Effect::Tell(Event::Remade { term: row.version.term }));
        }
        if let Some((leader, theirs)) = self.watch.differs(&self.config)
            && differed != Some((leader, theirs))
            && self.config.part != Part::Observer
        {
            effects.push(Effect::Tell(Event::Differs { leader: leader.member, theirs }));
        }
        self.check_claim(&row, news.went_back, now, effects);
    }

    fn tell_news(&self, before: Option<ControlState>, row: &ControlState, effects: &mut Fx) {
        let reign = |row: &ControlState| (row.version.term, row.leader);
        let former = before.and_then(|before| before.leader).map(|leader| leader.member);
        let is_new = match &before {
            Some(before) => reign(before) != reign(row),
            None => row.version.term > Term::NONE,
        };
        if is_new {
            let leader = row.leader.map(|leader| leader.member);
            let (term, reason) = (row.version.term, row.reason);
            effects.push(Effect::Tell(Event::Reigned(Reign { term, leader, reason, former })));
        }
        if before.is_some_and(|before| before.published.round != row.published.round) {
            let round = row.published.round;
            effects.push(Effect::Tell(Event::RoundChanged { round }));
        }
    }

    /// What the row says of a term that we hold, or might.
    fn check_claim(&mut self, row: &ControlState, went_back: bool, now: Instant, effects: &mut Fx) {
        if self
            .owed
            .is_some_and(|owed| row.leader != Some(owed.me) || row.version.term != owed.term)
        {
            self.owed = None;
        }
        if let Some(claim) = &mut self.claim {
            if went_back || row.leader != Some(claim.me) || row.version.term != claim.version.term {
                return self.lose(Loss::Superseded, effects);
            }
            // An earlier renewal may have landed late.
            claim.version = row.version;
            return self.heed_preference(row, now, effects);
        }
        let Some(me) = self.me().filter(|me| row.leader == Some(*me)) else { return };
        let term = row.version.term;
        if term <= self.given_up || term < self.watch.highest {
            return;
        }
        let was_named = row.reason == Reason::Transferred;
        let abstains = self.abstains_until.is_some_and(|until| now < until) && !was_named;
        if self.leaving.is_some() || abstains {
            self.given_up = term;
            self.owe(me, term, Reason::Resigned);
        } else {
            self.abstains_until = None;
            self.claim = Some(Claim::found(me, row.version, row.preferred, now));
            *self.leading = Leading::take_up(&self.config, &row.published, now);
        }
    }

    pub(super) fn owe(&mut self, me: Holder, term: Term, reason: Reason) {
        let successors = self.watch.row().map(|row| row.published.successors).unwrap_or_default();
        let successors = successors.iter().filter(|id| *id != me.member).collect();
        self.owed = Some(Owed { me, term, reason, successors });
    }

    /// How long after a look the next is due.
    pub(super) fn look_every(&self) -> Duration {
        let round = self.watch.round(&self.config);
        match (self.watch.rank_of(self.config.me), self.config.part) {
            (Some(_), Part::Candidate | Part::Role) => self.config.renew_every(round),
            // In the first round of a term the leader comes to know who is to follow it, and we want to know, too.
            (None, Part::Candidate) if self.watch.row().is_some_and(|row| self.is_young(row)) => {
                self.config.renew_every(round).saturating_mul(2)
            }
            // Who is not in the group has no heartbeats.
            (None, Part::Candidate) if self.incarnation.is_none() => round,
            // Heartbeats look once a round; this only comes when one of them is late.
            (None, Part::Candidate) => round.saturating_mul(2),
            (_, Part::Role | Part::Observer) => round,
        }
    }

    /// Whether the leader before has handed over to this member.
    fn is_named(&self, row: &ControlState) -> bool {
        row.leader.is_none()
            && row.reason == Reason::Transferred
            && row.published.successors.rank_of(self.config.me) == Some(0)
    }

    /// Whether its leader has hardly begun, and nobody is named to follow.
    fn is_young(&self, row: &ControlState) -> bool {
        let first_round = row.version.beat < u64::from(self.config.renewals);
        row.leader.is_some() && row.published.successors.is_empty() && first_round
    }

    pub(super) fn begin_to_leave(&mut self, effects: &mut Fx) {
        if self.leaving.is_none() {
            self.give_back(Reason::Resigned, effects);
            self.leaving = Some(Leaving::Tried(0));
        }
    }

    pub(super) fn leave(&mut self, effects: &mut Fx) -> Option<Statement> {
        /// More would keep a process that wants to end from ending; its row will be evicted.
        const ATTEMPTS: u32 = 3;
        let Some(Leaving::Tried(tried)) = self.leaving else { return None };
        let me = self.me().filter(|_| self.config.part == Part::Candidate && tried < ATTEMPTS);
        match me {
            Some(me) => {
                self.leaving = Some(Leaving::Tried(tried + 1));
                Some(Statement::Leave { me })
            }
            None => {
                self.left(effects);
                None
            }
        }
    }

    pub(super) fn left(&mut self, effects: &mut Fx) {
        self.leaving = Some(Leaving::Left);
        self.incarnation = None;
        effects.push(Effect::Tell(Event::Left));
    }
}

/// What the oracle sees.
pub(super) fn view(config: &Config, figures: &Figures) -> View {
    let mut view = View::new(config.me, []);
    view.request_rates = [(config.me, figures.requests)].into();
    view.history = figures.history;
    view.preference = config.preference;
    view.application = figures.application;
    view
}

/// What the application's figures are worth.
pub(super) fn standing(config: &Config, figures: &Figures) -> Candidacy {
    // Better a leader of unknown worth than none.
    let leniency = Leniency { unheard: true, unknown: true };
    config.oracle.measure_with(&view(config, figures), leniency)
}

pub(super) fn measure(config: &Config, figures: &Figures) -> Option<Score> {
    standing(config, figures).ok().map(|measured| measured.score)
}
