//! Election on a database: registers are rows, and every decision is one conditional write.
//!
//! After Niazi, Ismail, Berthou and Dowling, *Leader Election using NewSQL Database Systems* (2015). Kept:
//! a control row (VARS) and a row per member (DESCRIPTORS), monotonic ids, missed rounds, eviction by the
//! leader, joining again with a flag, rounds that grow under contention. Replaced, because as printed
//! two lead at once (`mandate_sim::registers::printed` shows it): locks, transactions of several
//! statements, and suspicion by counting rounds.
//!
//! # The rules, and why
//!
//! The leader *renews* its control row several times a round; each renewal is a new [`Version`] (term and
//! beat) of the row. Who is not the leader *watches* versions, and *takes over* when one has stood still for
//! a lease.
//!
//! 1. **A takeover names the version it watched**, term, beat and leader, and is one write. If the leader renewed
//!    meanwhile, or another was first, nothing changes. This alone makes terms unique, on any database on
//!    which the first of two writers to a row wins.
//! 2. **It raises the term in the same write**, above every term that was ever seen here: that is the token
//!    by which others tell leaders apart.
//! 3. **Suspicion is time, on the watcher's own clock.** A count of rounds is no time: rounds run back to
//!    back after a slow statement.
//! 4. **The watcher counts from the answer** that first showed the version. Counted from when it asked, the
//!    version might be younger than the watcher thinks.
//! 5. **The leader counts from before it asked.** Counted from the answer, its lease would last longer than
//!    that of a member that saw the write before it did. An answer that comes when its own lease is over grants
//!    nothing.
//! 6. **Both allow for drift**: the leader counts on less than the lease, watchers wait for more.
//! 7. **The lease is part of the version.** A leader that publishes a shorter one counts on no more from
//!    when it *sends* it, whether or not it hears an answer; a longer one counts once acknowledged.
//! 8. **A renewal names the version it replaces**, too. One that was held up, with another lease, must not
//!    land after one that was acknowledged.
//! 9. **An unknown outcome is never guessed.** No lease comes of it; the next statement names the version
//!    again and so finds out. A term that the row gives to this very incarnation, and that it has not
//!    given up, is its own, without a lease until it is renewed.
//! 10. **A lease that has lapsed stays lost.** The member may take a new term at once, if the row still
//!     stands as it left it.
//! 11. **A row that goes back, is gone, or was made again has lost writes**, and one of them may have granted a lease that its
//!     leader still counts on. Who sees it says so, and takes nothing over for the longest lease, whatever the row says: also
//!     not one that is vacant, and not one that it held itself. Only if the row is there again as it was, or a later one, was
//!     it a stale answer.
//! 12. **Who resigns stops first**, then vacates the row; a vacant row may be taken at once.
//! 13. **A row that is made again starts at the highest term that is known**: to the history, to the fence, to the member that makes
//!     it. So terms rise where anything remembers them.
//! 14. **The leader's guarantee is in the row, and watchers go by it.** The end of a session is enough only for a leader that
//!     relies on terms alone. Who has another guarantee than the leader does not join; a leader without a lease is never
//!     taken over from by one who relies on being alone, until it has vacated the row. (One that was cut off and deposed by
//!     another without a lease may hold on to its term: it promises nothing of time.)
//! 15. **A round that is longer than our own can become is somebody else's setting.** It binds as a lease, while its leader
//!     leads, and is not inherited.
//!
//! The simulator removes these one by one and sees two leaders (`docs/registers.md` has the counts).
//!
//! # Guarantees
//!
//! - [`SqlGuarantee::Fenced`]: one leader per term, and terms rise. Assumed: the database keeps what it has
//!   acknowledged. A backup put back, or a standby promoted without what the primary acknowledged, may
//!   give terms out again that its history lacks and that the member which takes over has not seen.
//! - [`SqlGuarantee::Leased`]: besides, at any instant at most one [`mandate`](Member::mandate) holds. Assumed
//!   besides: clocks that count suspension, and whose rates are off by less than the allowance. A restored
//!   database must come back no sooner than the longest lease after the last write that it lost: members that saw what was
//!   lost wait for it (rule 11), but one that starts afterwards cannot know.
//!
//! # Who comes next
//!
//! The leader publishes up to three successors, the best of the living by score. They look several times a
//! round and take turns; everyone else looks once a round, with its own heartbeat, waits longer, by
//! chance, and looks once more before it acts. So a thousand members do not storm one row.
//!
//! # Bounds
//!
//! A member reads or writes a constant number of rows a round; only the leader reads all, once a round. A
//! member remembers the control row and two statements; a leader, besides, [`MAX_MEMBERS`] rows and
//! [`MAX_ROLES`] preferences. Statements that fail are tried again after pauses that grow, by chance.

mod answers;
mod chance;
mod claim;
mod config;
mod following;
mod interface;
mod leading;
mod pace;
mod request_slot;
mod roles;
mod roster;
mod statement;
mod values;
mod watching;

use alloc::boxed::Box;

pub use config::{
    Config, InvalidConfig, MAX_LEASE, MAX_MEMBERS, MAX_ROLES, MIN_ROUND, Part, SqlGuarantee,
};
pub use interface::{Effect, Event, Input, Loss, Reason, Reign, StatementId};
pub use roles::{ROLES_AT_ONCE, spread};
pub use statement::{
    ControlState, DatabaseAnswer, Holder, MAX_SUCCESSORS, MemberRow, PROTOCOL, Published,
    Statement, StatementOutcome, StayId, Successors, Version,
};

use chance::Chance;
use claim::Claim;
use pace::Pace;
use request_slot::{Flight, RequestSlot};
use roles::Spread;
use roster::Roster;
use values::Values;
use watching::Watch;

use crate::election::{Candidacy, Elector, Figures, Lease, NoTransfer, State};
use crate::identity::{MemberId, Term};
use crate::machine::{Effects, Machine};
use crate::oracle::View;
use crate::score::Score;
use crate::time::Instant;
use crate::value::{NoPublish, Value};

/// One member's part in an election on a database.
#[derive(Clone, Debug)]
pub struct Member {
    config: Config,
    chance: Chance,
    figures: Figures,
    score: Option<Score>,
    requests: u64,
    /// What decides who leads.
    control: RequestSlot,
    /// What the leader does besides.
    chores: RequestSlot,
    /// Our number in the group, while we are in it.
    incarnation: Option<StayId>,
    was_evicted: bool,
    next_join: Instant,
    next_heartbeat: Instant,
    next_look: Instant,
    /// When the last look that was answered was sent.
    looked: Instant,
    /// A hint came while a statement was under way.
    looks_again: bool,
    watch: Watch,
    claim: Option<Claim>,
    /// A term that we have given up and whose row is not vacated yet.
    owed: Option<Owed>,
    /// No term up to this one is ours any more, whatever the row says.
    given_up: Term,
    abstains_until: Option<Instant>,
    leading: Box<Leading>,
    leaving: Option<Leaving>,
    values: Values,
    told: State,
}

/// What only a leader needs.
#[derive(Clone, Debug)]
struct Leading {
    roster: Roster,
    successors: Successors,
    pace: Pace,
    spread: Spread,
    next_sweep: Instant,
}

/// A row to vacate.
#[derive(Clone, Copy, Debug)]
struct Owed {
    me: Holder,
    term: Term,
    reason: Reason,
    successors: Successors,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// So many attempts were made.
    Tried(u32),
    Left,
}

/// What a leader does besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chore {
    Evict,
    ReadRoles,
    Prefer,
    Sweep,
}

/// What the control request slot does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Look,
    Join,
    Heartbeat,
    Renew,
    Takeover(Reason),
    Vacate,
    Leave,
}

impl Member {
    /// Starts a member. `seed` is a random number that the driver drew: jitter comes of it.
    pub fn start(config: Config, seed: u64, now: Instant, effects: &mut Effects<Effect>) -> Self {
        let leading = Leading::new(&config, now);
        let mut member = Member {
            chance: Chance::new(seed),
            figures: Figures::default(),
            score: following::measure(&config, &Figures::default()),
            requests: 0,
            control: RequestSlot::default(),
            chores: RequestSlot::default(),
            incarnation: None,
            was_evicted: false,
            next_join: now,
            next_heartbeat: now,
            next_look: now,
            looked: now,
            looks_again: false,
            watch: Watch::default(),
            claim: None,
            owed: None,
            given_up: Term::NONE,
            abstains_until: None,
            leading: Box::new(leading),
            leaving: None,
            values: Values::default(),
            told: State::Electing,
            config,
        };
        member.advance(now, effects);
        member
    }

    /// The term that this member holds at `now`, and until when it can be sure of it (`None`: for as long
    /// as nobody holds a higher one).
    pub fn mandate(&self, now: Instant) -> Option<(Term, Option<Instant>)> {
        let claim = self.claim.as_ref().filter(|claim| claim.held)?;
        let term = claim.version.term;
        match self.config.guarantee {
            SqlGuarantee::Fenced => Some((term, None)),
            SqlGuarantee::Leased => {
                let deadline = claim.deadline?;
                (now < deadline).then_some((term, Some(deadline)))
            }
        }
    }

    /// Who leads at `now`, as far as this member can be sure.
    pub fn state(&self, now: Instant) -> State {
        if let Some((term, _)) = self.mandate(now) {
            return State::Leading { term };
        }
        match self.watch.leader_until(&self.config) {
            Some((leader, term, until))
                if now < until && self.claim.is_none() && Some(leader) != self.me() =>
            {
                State::Following { leader: leader.member, term }
            }
            _ => State::Electing,
        }
    }

    /// This member's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The control row as it was last seen.
    pub fn row(&self) -> Option<&ControlState> {
        self.watch.row()
    }

    /// As the leader: who is silent, and so about to be evicted, or was and has not come back. Only leaders look.
    pub fn suspected(&self) -> impl Iterator<Item = MemberId> + '_ {
        let leads = self.claim.as_ref().is_some_and(|claim| claim.held);
        self.leading.roster.suspected().filter(move |_| leads)
    }

    /// What this member may be asked to look at soon: it is among those that come next, or only looks.
    pub fn is_next(&self) -> bool {
        self.config.part == Part::Observer || self.watch.rank_of(self.config.me).is_some()
    }

    /// What the application knows of this member, as the oracle sees it.
    pub fn view(&self) -> View {
        following::view(&self.config, &self.figures)
    }

    /// What it is worth as a leader, or why it is no candidate.
    pub fn standing(&self) -> Candidacy {
        following::standing(&self.config, &self.figures)
    }

    /// Its number in the group, while it is in it.
    pub fn incarnation(&self) -> Option<StayId> {
        self.incarnation
    }

    /// Whether it leaves the group, or has left it.
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    fn me(&self) -> Option<Holder> {
        self.incarnation.map(|incarnation| Holder { member: self.config.me, incarnation })
    }

    /// Asks the database for something on a free request slot.
    fn execute(&mut self, lane: Which, statement: Statement, now: Instant, effects: &mut Fx) {
        self.requests += 1;
        let id = StatementId(self.requests);
        let lane = match lane {
            Which::Control => &mut self.control,
            Which::Chores => &mut self.chores,
        };
        // A renewal that is lost must be made again before the lease is over.
        let timeout = match &statement {
            Statement::Renew { publish, .. } => self.config.timeout.min(publish.lease / 2),
            _ => self.config.timeout,
        };
        let gives_up = now + lane.patience(timeout);
        effects.push(Effect::Execute { id, statement: statement.clone() });
        lane.flight = Some(Flight { id, statement, sent: now, gives_up });
    }

    /// Everything that is due.
    fn advance(&mut self, now: Instant, effects: &mut Fx) {
        self.expire(now, effects);
        self.give_up(now, effects);
        if self.control.is_free()
            && let Some((_, step)) = self.next_step().filter(|(at, _)| *at <= now)
        {
            self.take(step, now, effects);
        }
        self.do_chores(now, effects);
        self.tell_state(now, effects);
    }

    /// What the control request slot is to do next, and when.
    fn next_step(&self) -> Option<(Instant, Step)> {
        let (at, step) = match (self.leaving, &self.owed, &self.claim) {
            (Some(Leaving::Left), _, _) => return None,
            (_, Some(_), _) => (self.control.not_before, Step::Vacate),
            (Some(Leaving::Tried(_)), _, _) => (self.control.not_before, Step::Leave),
            (None, None, Some(claim)) => (claim.next, Step::Renew),
            (None, None, None) => self.next_as_follower()?,
        };
        Some((at.max(self.control.not_before), step))
    }

    fn take(&mut self, step: Step, now: Instant, effects: &mut Fx) {
        let statement = match step {
            Step::Look => Some(Statement::Look),
            Step::Join => Some(self.join()),
            Step::Heartbeat => self.heartbeat(),
            Step::Renew => self.renew(now),
            Step::Takeover(reason) => self.take_over(reason),
            Step::Vacate => self.vacate(),
            Step::Leave => self.leave(effects),
        };
        if let Some(statement) = statement {
            self.execute(Which::Control, statement, now, effects);
        }
    }

    fn tell_state(&mut self, now: Instant, effects: &mut Fx) {
        let state = self.state(now);
        if core::mem::replace(&mut self.told, state) != state {
            effects.push(Effect::Tell(Event::Changed(state)));
            self.values.forget_told();
        }
        self.tell_value(effects);
    }
}

type Fx = Effects<Effect>;

/// Which request slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Control,
    Chores,
}

impl Elector for Member {
    fn resign() -> Input {
        Input::Resign
    }

    fn stop() -> Input {
        Input::Leave
    }

    fn transfer(to: MemberId) -> Result<Input, NoTransfer> {
        Ok(Input::Transfer { to })
    }

    fn figures(figures: Figures) -> Option<Input> {
        Some(Input::Figures(figures))
    }

    fn publish(value: Value) -> Result<Input, NoPublish> {
        Ok(Input::Publish(value))
    }

    fn held(&self, now: Instant) -> Option<Lease> {
        self.mandate(now).map(|(term, until)| Lease::of_term(term, until))
    }
}

impl Machine for Member {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, input: Input, now: Instant, effects: &mut Effects<Effect>) {
        // What has ended by now has ended, whatever the input says.
        self.expire(now, effects);
        match input {
            Input::Answered { id, outcome } => self.answered(id, outcome, now, effects),
            Input::RowChanged => self.look_now(now),
            Input::LeaderSessionGone { term } => self.session_gone(term, now),
            Input::Figures(figures) => {
                self.figures = figures;
                self.score = following::measure(&self.config, &figures);
            }
            Input::Publish(value) => self.publish(value, now),
            Input::Resign => self.resign(now, effects),
            Input::Transfer { to } => self.transfer(to, now, effects),
            Input::Leave => self.begin_to_leave(effects),
            Input::Joined(incarnation) => self.joined_elsewhere(incarnation, effects),
        }
        self.advance(now, effects);
    }

    fn handle_timeout(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        self.advance(now, effects);
    }

    fn deadline(&self) -> Option<Instant> {
        let control = match &self.control.flight {
            Some(flight) => Some(flight.gives_up),
            None => self.next_step().map(|(at, _)| at),
        };
        let chores = match &self.chores.flight {
            Some(flight) => Some(flight.gives_up),
            None => self.next_chore().map(|(at, _)| at),
        };
        let lease = self.claim.as_ref().filter(|claim| claim.held && self.is_leased());
        let lease = lease.and_then(|claim| claim.deadline);
        let follows = matches!(self.told, State::Following { .. });
        let silence = self.watch.leader_until(&self.config).filter(|_| follows);
        let silence = silence.map(|(_, _, until)| until);
        [control, chores, lease, silence].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
