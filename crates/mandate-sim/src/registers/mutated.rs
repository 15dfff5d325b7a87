//! A member, or what a wrong implementation of one would do: to see that the harness notices.
//!
//! Bugs are put around the machine, not into it: statements are changed on their way out, answers on
//! their way in, and what `mandate()` says is worked out wrongly.

use std::collections::BTreeMap;

use mandate_proto::identity::Term;
use mandate_proto::machine::{Effects, Machine};
use mandate_proto::registers::{
    Config, ControlState, DatabaseAnswer, Effect, Event, Holder, Input, Loss, Member, PROTOCOL,
    Published, Reason, Statement, StatementId, StatementOutcome, Version,
};
use mandate_proto::time::Instant;

use super::Mutant;
use super::seen::SeenLeases;

/// Statements of the mutant's own have names from here on.
const OWN: u64 = 1 << 60;

/// A member with a bug, or without.
pub struct Mutated {
    member: Member,
    mutant: Option<Mutant>,
    effects: Effects<Effect>,
    under_way: BTreeMap<u64, (StatementId, Instant, Statement)>,
    own: u64,
    /// Until when a wrong implementation would say that it leads.
    until: Option<(Term, Instant)>,
    /// For how many rounds the leader has not renewed.
    rounds: (Option<Version>, u32),
    seen: SeenLeases,
    /// The version that was shown last.
    shown: Option<Version>,
}

/// What a member asks for: a statement, or that the application is told.
pub(super) enum Asked {
    Statement(u64, Statement),
    Told(Event),
    /// It takes over although a lease that it has seen still runs.
    Impatient(String),
    /// It was shown that the row went back, and has not told of it.
    Untold(String),
}

impl Mutated {
    pub(super) fn start(
        config: Config,
        seed: u64,
        mutant: Option<Mutant>,
        now: Instant,
        asked: &mut Vec<Asked>,
    ) -> Self {
        let mut effects = Effects::new();
        let member = Member::start(config, seed, now, &mut effects);
        let under_way = BTreeMap::new();
        let (until, rounds, seen) = (None, (None, 0), SeenLeases::default());
        let mut mutated = Mutated {
            member,
            mutant,
            effects,
            under_way,
            own: OWN,
            until,
            rounds,
            seen,
            shown: None,
        };
        mutated.pass_on(now, asked);
        mutated
    }

    /// The machine.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// What it says of itself.
    pub fn mandate(&self, now: Instant) -> Option<Term> {
        let wrong = self.until.filter(|(_, until)| now < *until).map(|(term, _)| term);
        self.member.mandate(now).map(|(term, _)| term).or(wrong)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.member.deadline()
    }

    pub(super) fn tell(&mut self, input: Input, now: Instant, asked: &mut Vec<Asked>) {
        self.member.handle(input, now, &mut self.effects);
        self.pass_on(now, asked);
    }

    pub(super) fn time_out(&mut self, now: Instant, asked: &mut Vec<Asked>) {
        self.member.handle_timeout(now, &mut self.effects);
        self.pass_on(now, asked);
    }

    pub(super) fn answer(
        &mut self,
        id: u64,
        mut outcome: StatementOutcome,
        now: Instant,
        asked: &mut Vec<Asked>,
    ) {
        let Some((id, sent, statement)) = self.under_way.remove(&id) else { return };
        let mut seen_at = now;
        if self.mutant == Some(Mutant::OwnGuarantee)
            && let Some(row) = row_of(&mut outcome)
        {
            row.published.guarantee = self.member.config().guarantee();
        }
        let shown = row_of(&mut outcome).copied();
        if let (Some(Mutant::ValueOutlivesTerm), Some(row)) = (self.mutant, shown) {
            of_its_term(&mut outcome, row.version.term);
        }
        let loss = self.loss(&outcome, shown);
        if let Some(row) = shown {
            self.seen.show(&row, self.member.config(), now);
        }
        match self.mutant {
            Some(Mutant::LostLeaseForgotten) => self.take_vacant(shown, now, asked),
            Some(Mutant::UnknownIsSuccess) if outcome == StatementOutcome::Unknown => {
                if let Some(answer) = as_if_carried_out(&statement) {
                    outcome = StatementOutcome::Answered(answer);
                }
            }
            Some(Mutant::WatchFromSending)
                if matches!(statement, Statement::Look | Statement::Heartbeat { .. }) =>
            {
                seen_at = sent;
            }
            Some(Mutant::SuspicionByRounds) => {
                self.count_round(&statement, &outcome, asked);
            }
            Some(Mutant::LeaseFromAnswer) => self.hold_from(now, &statement, &outcome),
            Some(Mutant::LoweredAtOnce) => self.hold_from(sent, &statement, &outcome),
            _ => {}
        }
        self.member.handle(Input::Answered { id, outcome }, seen_at, &mut self.effects);
        if seen_at != now {
            self.member.handle_timeout(now, &mut self.effects);
        }
        self.pass_on(now, asked);
        let tells = |asked: &Asked| matches!(asked, Asked::Told(event) if is_of_loss(event));
        if let Some(loss) = loss.filter(|_| !asked.iter().any(tells)) {
            asked.push(Asked::Untold(loss));
        }
    }

    /// What an answer shows to be lost, by what was shown before: a row that was there and is not, or an older one.
    fn loss(&mut self, outcome: &StatementOutcome, shown: Option<ControlState>) -> Option<String> {
        let is_row = matches!(
            outcome,
            StatementOutcome::Answered(
                DatabaseAnswer::Control { .. } | DatabaseAnswer::Joined { .. }
            )
        );
        if !is_row {
            return None;
        }
        let before = core::mem::replace(&mut self.shown, shown.map(|row| row.version))?;
        match self.shown {
            None => Some(format!("was shown {before}, and then no row")),
            Some(version) if version < before => {
                Some(format!("was shown {before}, and then {version}"))
            }
            Some(_) => None,
        }
    }

    fn pass_on(&mut self, now: Instant, asked: &mut Vec<Asked>) {
        while let Some(effect) = self.effects.pop() {
            match effect {
                Effect::Execute { id, mut statement } => {
                    if let (Some(Mutant::TermNotRaised), Statement::Takeover { was, term, .. }) =
                        (self.mutant, &mut statement)
                    {
                        *term = was.term.max(Term::new(1));
                    }
                    self.under_way.insert(id.get(), (id, now, statement.clone()));
                    self.ask(id.get(), statement, now, asked);
                }
                Effect::Abandon { id } => {
                    self.under_way.remove(&id.get());
                }
                Effect::Tell(event) => {
                    if let Event::Lost { loss, .. } = &event
                        && *loss != Loss::Expired
                    {
                        self.until = None;
                    }
                    if self.mutant != Some(Mutant::LossesUntold) || !is_of_loss(&event) {
                        asked.push(Asked::Told(event));
                    }
                }
            }
        }
    }

    fn ask(&self, id: u64, statement: Statement, now: Instant, asked: &mut Vec<Asked>) {
        if let Statement::Takeover { was, .. } = &statement
            && let Some((_, lease)) = self.seen.running(now)
        {
            asked.push(Asked::Impatient(format!("takes over {was}, and has seen {lease}")));
        }
        asked.push(Asked::Statement(id, statement));
    }

    /// What is vacant is taken at once, whatever was there before.
    fn take_vacant(&mut self, row: Option<ControlState>, now: Instant, asked: &mut Vec<Asked>) {
        let Some(row) = row.filter(|row| row.leader.is_none()) else { return };
        let config = self.member.config();
        let Some(term) = row.version.term.next().filter(|_| config.may_lead()) else { return };
        let Some(incarnation) = self.member.incarnation() else { return };
        self.own += 1;
        let me = Holder { member: config.me(), incarnation };
        let (was, reason) = (row.version, Reason::First);
        let publish = Published { guarantee: config.guarantee(), ..row.published };
        let (of, value) = (None, None);
        let takeover = Statement::Takeover { me, was, of, term, reason, publish, value };
        self.ask(self.own, takeover, now, asked);
    }

    /// The lease of a write that was acknowledged, counted from `start`, and never cut short.
    fn hold_from(&mut self, start: Instant, statement: &Statement, outcome: &StatementOutcome) {
        let StatementOutcome::Answered(DatabaseAnswer::Control { changed: true, .. }) = outcome
        else {
            return;
        };
        let (term, lease) = match statement {
            Statement::Renew { was, publish, .. } => (was.term, publish.lease),
            Statement::Takeover { term, publish, .. } => (*term, publish.lease),
            _ => return,
        };
        let until = start + self.member.config().sure(lease);
        let before = self.until.filter(|(of, _)| *of == term);
        self.until = Some((term, before.map_or(until, |(_, before)| before.max(until))));
    }

    /// A round has shown the leader, and counts as missed if it has not renewed since the last.
    fn count_round(
        &mut self,
        statement: &Statement,
        outcome: &StatementOutcome,
        asked: &mut Vec<Asked>,
    ) {
        let StatementOutcome::Answered(DatabaseAnswer::Control { row: Some(row), .. }) = outcome
        else {
            return;
        };
        let (Statement::Heartbeat { me, .. }, Some(leader)) = (statement, row.leader) else {
            return;
        };
        let (version, missed) = &mut self.rounds;
        *missed = if *version == Some(row.version) { *missed + 1 } else { 0 };
        *version = Some(row.version);
        // As many as a lease has: by a clock, that would be long enough.
        let allowed = row.published.lease.as_nanos().div_ceil(row.published.round.as_nanos());
        let is_over = u128::from(*missed) >= allowed;
        let Some(term) = row.version.term.next().filter(|_| is_over) else { return };
        if leader != *me {
            *missed = 0;
            self.own += 1;
            let (was, publish) = (row.version, row.published);
            let reason = Reason::Silence;
            let (me, of) = (*me, row.leader);
            let value = None;
            let takeover = Statement::Takeover { me, was, of, term, reason, publish, value };
            asked.push(Asked::Statement(self.own, takeover));
        }
    }
}

/// Whether a member tells of writes that were lost.
fn is_of_loss(event: &Event) -> bool {
    matches!(event, Event::WentBack { .. } | Event::Remade { .. })
}

/// The row that an answer shows.
fn row_of(outcome: &mut StatementOutcome) -> Option<&mut ControlState> {
    match outcome {
        StatementOutcome::Answered(DatabaseAnswer::Control { row, .. }) => row.as_mut(),
        StatementOutcome::Answered(DatabaseAnswer::Joined { row, .. }) => Some(row),
        _ => None,
    }
}

/// Takes whatever value the row shows for one of its term.
fn of_its_term(outcome: &mut StatementOutcome, of: Term) {
    if let StatementOutcome::Answered(
        DatabaseAnswer::Control { value: Some((term, _)), .. }
        | DatabaseAnswer::Joined { value: Some((term, _)), .. },
    ) = outcome
    {
        *term = of;
    }
}

/// What the answer would be if the statement had been carried out.
fn as_if_carried_out(statement: &Statement) -> Option<DatabaseAnswer> {
    let (me, version, reason, published) = match statement {
        Statement::Renew { me, was, publish, .. } => {
            let version = Version { term: was.term, beat: was.beat + 1 };
            (*me, version, Reason::Silence, *publish)
        }
        Statement::Takeover { me, term, reason, publish, .. } => {
            (*me, Version { term: *term, beat: 0 }, *reason, *publish)
        }
        _ => return None,
    };
    let leader = Some(me);
    let preferred = None;
    let row = ControlState { protocol: PROTOCOL, version, leader, reason, published, preferred };
    Some(DatabaseAnswer::Control { changed: true, row: Some(row), value: None })
}
