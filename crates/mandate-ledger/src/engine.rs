//! The loop that drives a member of a group on a ledger.

use std::sync::Arc;
use std::time::Duration;

use mandate_proto::identity::Lifetime;
use mandate_proto::machine::{Effects, Machine};
use mandate_proto::neli::{self, Config, Effect, Event, Input, Layout, Partition, Unfit};
use mandate_runtime::clock::Clock;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::elections::{Asked, Elections};
use crate::ledger::{Ledger, LedgerError, Member};
use crate::roles::{Board, Roles, Stop};

/// How a member is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What is wanted of it.
    pub config: Config,
    /// How many roles there are.
    pub roles: u32,
}

/// Why a member cannot start. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What is wanted does not fit what the ledger grants.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The system gave no random number.
    #[error("the system gave no random number: {0}")]
    Random(getrandom::Error),
}

/// Inputs that go before what is due: a flood must not keep a leader from its renewals.
const MAX_BEFORE_DUE: u32 = 512;

/// How long a member that is to end waits for its ledger. The handle waits for two seconds.
const LAST_WORDS: Duration = Duration::from_millis(1500);

/// Starts a member on this process's tokio runtime.
pub fn start<L: Ledger>(ledger: &L, setup: Setup) -> Result<Roles, StartError> {
    let plan = setup.config.with_roles(setup.roles).resolve(ledger.grants())?;
    let life = Lifetime::new(getrandom::u64().map_err(StartError::Random)?);
    let member = ledger.member(life, &plan)?;
    let layout = Layout::new(plan.grants().partitions, setup.roles);
    let board = Board::new(Clock::start(), layout, plan.mode());
    let mut effects = Effects::new();
    let machine = neli::Member::start(plan, life, board.clock().now(), &mut effects);
    let (stop, stopped) = watch::channel(Stop::default());
    let (end, ended) = watch::channel(None);
    let (elections, wanted) = mpsc::unbounded_channel();
    let lease = machine.plan().threshold();
    let driver = Driver {
        elections: Elections::new(machine.plan().me(), wanted),
        machine,
        effects,
        member,
        board: Published(board.clone()),
        ending: Vec::new(),
    };
    tokio::spawn(driver.run(stopped, end));
    Ok(Roles { board, stop, ended, elections, lease })
}

struct Driver<M> {
    machine: neli::Member,
    effects: Effects<Effect>,
    member: M,
    board: Published,
    elections: Elections,
    /// Partitions whose work is to end.
    ending: Vec<Partition>,
}

/// A board that shows nothing held once its driver is gone, however it went.
struct Published(Arc<Board>);

impl Published {
    fn withdraw(&self) {
        for partition in (0..self.layout().partitions()).map(Partition::new) {
            self.publish(partition, None);
        }
    }
}

impl std::ops::Deref for Published {
    type Target = Arc<Board>;

    fn deref(&self) -> &Arc<Board> {
        &self.0
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl<M: Member> Driver<M> {
    async fn run(mut self, mut stop: watch::Receiver<Stop>, end: watch::Sender<Option<String>>) {
        let reason = match self.drive(&mut stop).await {
            Ok(()) => "it has left the group".to_owned(),
            Err(error) => {
                tracing::error!(%error, "a member has ended");
                error.to_string()
            }
        };
        self.board.withdraw();
        let closed = tokio::time::timeout(LAST_WORDS, self.member.close()).await;
        if closed.is_err() {
            tracing::warn!("the ledger did not let this member go in time");
        }
        end.send_replace(Some(reason));
    }

    async fn drive(&mut self, stop: &mut watch::Receiver<Stop>) -> Result<(), LedgerError> {
        let mut resignations = 0;
        let mut before_due = 0;
        loop {
            if self.carry_out() {
                return Ok(());
            }
            let pause = self.pause();
            if before_due >= MAX_BEFORE_DUE && pause.is_zero() {
                before_due = 0;
                self.handle_timeout();
                continue;
            }
            before_due += 1;
            let board = Arc::clone(&self.board);
            tokio::select! {
                biased;
                changed = stop.changed() => {
                    let wanted = *stop.borrow_and_update();
                    if changed.is_err() || wanted.leave {
                        self.handle(Input::Leave);
                    } else if wanted.resignations > resignations {
                        resignations = wanted.resignations;
                        self.handle(Input::Resign);
                    }
                }
                () = board.idle.notified(), if !self.ending.is_empty() => {}
                input = self.member.next() => self.handle(input?),
                asked = self.elections.next() => self.asked(asked),
                () = sleep(pause) => {
                    before_due = 0;
                    self.handle_timeout();
                }
            }
        }
    }

    fn asked(&mut self, asked: Asked) {
        let (machine, clock) = (&self.machine, self.board.clock());
        let held = |partition| machine.mandate(partition, clock.now());
        match asked {
            Asked::Open(wanted) => {
                let now_held = held(wanted.0);
                self.elections.open(wanted, clock, now_held);
            }
            Asked::Returned => {}
            Asked::Command(index, command) => {
                if self.elections.obey(index, command, held) {
                    self.handle(Input::Resign);
                }
            }
        }
    }

    fn handle(&mut self, input: Input) {
        self.machine.handle(input, self.board.clock().now(), &mut self.effects);
    }

    fn handle_timeout(&mut self) {
        self.machine.handle_timeout(self.board.clock().now(), &mut self.effects);
    }

    /// Until something is due. At most a second, because timers do not count suspension.
    fn pause(&self) -> Duration {
        let longest = Duration::from_secs(1);
        let now = self.board.clock().now();
        let due = self.machine.deadline().map(|due| due - now);
        due.into_iter()
            .chain(self.elections.wakes_in())
            .min()
            .map_or(longest, |due| due.min(longest))
    }

    /// Carries out everything that the machine has asked for, in order. Whether it has left.
    fn carry_out(&mut self) -> bool {
        let mut has_left = false;
        loop {
            self.settle();
            while let Some(effect) = self.effects.pop() {
                match effect {
                    Effect::Ask(request) => self.member.ask(request),
                    Effect::Abandon { id } => self.member.abandon(id),
                    Effect::Tell(event) => {
                        if let Event::Ended { partition, .. } = event {
                            self.ending.push(partition);
                        }
                        has_left |= event == Event::Left && self.machine.deadline().is_none();
                        log(&event);
                        let (machine, clock) = (&self.machine, self.board.clock());
                        self.elections.tell(&event, |one| machine.mandate(one, clock.now()));
                        self.board.tell(event);
                    }
                }
            }
            let (board, elections) = (&self.board, &self.elections);
            let is_over = |partition: &mut Partition| {
                !board.is_working(*partition) && !elections.is_lent(*partition)
            };
            let over: Vec<_> = self.ending.extract_if(.., is_over).collect();
            if over.is_empty() {
                return has_left;
            }
            for partition in over {
                self.handle(Input::Drained { partition });
            }
        }
    }

    /// What is held is published before anything is asked of anyone: what has ended is seen to have ended
    /// before the ledger can give it to another.
    fn settle(&mut self) {
        let (machine, clock) = (&self.machine, self.board.clock());
        let held = |partition| machine.mandate(partition, clock.now());
        self.elections.settle(held, |partition| machine.drains(partition));
        let now = self.board.clock().now();
        for partition in (0..self.board.layout().partitions()).map(Partition::new) {
            self.board.publish(partition, self.machine.mandate(partition, now));
        }
        let assigned = |partition| self.machine.is_assigned(partition);
        let mut noted = self.board.noted();
        noted.settle(assigned, self.machine.waiting_since());
        noted.disagrees_with(self.machine.disagreement(), self.machine.other_size());
    }
}

/// What an operator should look at is a warning.
fn log(event: &Event) {
    match event {
        Event::Dry { partition } => tracing::warn!(
            "{partition} is dry: it is assigned to this member, and nothing came for a threshold and a session by which it \
             could be led; see whether this host reaches the partition's broker, and whether it has one"
        ),
        Event::BarrierStuck { .. } => tracing::warn!(
            "the barrier is stuck: this member waits to be assigned something for longer than any member may hold that up"
        ),
        Event::DrainOverran { partition } => {
            tracing::warn!("work on {partition} took longer than is allowed, and it was released")
        }
        Event::WentBack { partition, from, to } => tracing::warn!(
            "the offsets of {partition} went back, from term {from} to {to}: was the topic made anew?"
        ),
        Event::Disagrees { ours, theirs, leads } => {
            let does = if *leads { "leads" } else { "wants to lead" };
            tracing::warn!(
                "another member of the group goes by another layout and {does}: it has {theirs}; this member has {ours}, \
                 and does not lead. Give all members the same partitions, roles and mode, and restart those that differ"
            );
        }
        Event::Resized { counted, found } if counted == found => {
            tracing::info!("the topic has {found} partitions again, as this member counts");
        }
        Event::Resized { counted, found: 0 } => tracing::warn!(
            "the topic is gone: this member counts {counted} partitions. Make it again with as many, and restart all members"
        ),
        Event::Resized { counted, found } => tracing::warn!(
            "the topic has {found} partitions by now, and this member counts {counted}: the number must not change while a \
             group uses it. Members go on with {counted}; restart all of them at once to use {found}"
        ),
        Event::Agrees => tracing::info!("no member of the group goes by another layout any more"),
        event => tracing::debug!(?event, "told"),
    }
}
