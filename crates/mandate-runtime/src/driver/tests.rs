//! The rules of the loop, with a machine and a backend that do nothing else.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Arrival,
    Timeout,
    Write,
    Send,
    Stop,
    Closed,
}

type Log = Arc<Mutex<Vec<Seen>>>;

/// Something is due at any time.
struct Hurried(Log);

impl Machine for Hurried {
    type Input = Seen;
    type Effect = Seen;

    fn handle(&mut self, input: Seen, _: Instant, _: &mut Effects<Seen>) {
        self.0.lock().unwrap().push(input);
    }

    fn handle_timeout(&mut self, _: Instant, _: &mut Effects<Seen>) {
        self.0.lock().unwrap().push(Seen::Timeout);
    }

    fn deadline(&self) -> Option<Instant> {
        Some(Instant::ORIGIN)
    }
}

impl Elector for Hurried {
    fn resign() -> Seen {
        Seen::Stop
    }

    fn held(&self, _: Instant) -> Option<Lease> {
        None
    }
}

/// Has so many arrivals, one after the other, and ends then.
struct Flood {
    arrivals: usize,
    log: Log,
    durable: Arc<Notify>,
}

impl Backend<Hurried> for Flood {
    type Arrival = ();

    const LEAVES_WITHIN: Duration = Duration::MAX;

    fn carry_out(&mut self, effect: Seen, _: &mut Driven<Hurried>) -> Carried {
        self.log.lock().unwrap().push(effect);
        if effect == Seen::Write { Carried::Begun } else { Carried::Done }
    }

    async fn durable(&mut self) {
        self.durable.notified().await;
    }

    async fn next(&mut self) {
        self.arrivals -= 1;
    }

    fn arrived(&mut self, (): (), driven: &mut Driven<Hurried>) {
        driven.handle(Seen::Arrival);
    }

    fn has_ended(&self) -> bool {
        self.arrivals == 0
    }

    fn status(&self, driven: &Driven<Hurried>) -> Status {
        Status::of(&driven.side)
    }

    async fn close(self) {
        self.log.lock().unwrap().push(Seen::Closed);
    }
}

/// A driver with such a backend, whose machine has asked for this at its start.
fn driver(
    arrivals: usize,
    asked: &[Seen],
) -> (Driver<Hurried, Flood>, crate::Election, Log, Arc<Notify>) {
    let (election, side) = EngineSide::open(None);
    let (log, durable) = (Log::default(), Arc::new(Notify::new()));
    let mut effects = Effects::new();
    asked.iter().for_each(|effect| effects.push(*effect));
    let backend = Flood { arrivals, log: log.clone(), durable: durable.clone() };
    (Driver::new(Hurried(log.clone()), effects, side, backend), election, log, durable)
}

#[tokio::test]
async fn a_flood_goes_before_what_is_due_but_only_so_much_of_it() {
    let (driver, _election, log, _) = driver(2000, &[]);
    driver.run().await;
    let log = log.lock().unwrap();
    let runs: Vec<_> = log.split(|seen| *seen == Seen::Timeout).map(<[_]>::len).collect();
    assert_eq!(runs[..3], [512; 3]);
    assert_eq!(log.iter().filter(|seen| **seen == Seen::Arrival).count(), 2000);
}

#[tokio::test]
async fn nothing_follows_what_is_not_durable_and_questions_are_answered_meanwhile() {
    let (driver, election, log, durable) = driver(1, &[Seen::Write, Seen::Send]);
    let driving = tokio::spawn(driver.run());
    assert!(election.status().await.is_some());
    assert_eq!(*log.lock().unwrap(), [Seen::Write]);
    durable.notify_one();
    driving.await.unwrap();
    assert_eq!(*log.lock().unwrap(), [Seen::Write, Seen::Send, Seen::Arrival, Seen::Closed]);
}

#[tokio::test]
async fn a_stop_holds_at_once_while_something_is_not_durable() {
    let (driver, election, log, _durable) = driver(1, &[Seen::Write, Seen::Send]);
    let driving = tokio::spawn(driver.run());
    election.shutdown().await;
    driving.await.unwrap();
    assert_eq!(*log.lock().unwrap(), [Seen::Write, Seen::Closed]);
}

#[tokio::test]
async fn a_member_that_is_asked_to_stop_goes_on_until_it_has_ended() {
    let (driver, election, log, _) = driver(3, &[]);
    drop(election);
    driver.run().await;
    let ended = [Seen::Stop, Seen::Arrival, Seen::Arrival, Seen::Arrival, Seen::Closed];
    assert_eq!(*log.lock().unwrap(), ended);
}
