//! A group of members whose every word is written down. Pings and regular heartbeats are left out.

use std::fmt::Write;
use std::time::Duration;

use mandate_proto::election::{Candidacy, Figures, State};
use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::{self, PeerGuarantee, Promised};
use mandate_proto::pole::member::{Config, Event, Input, Member, Message, Record};
use mandate_proto::pole::selection;
use mandate_sim::clock::HostClocks;
use mandate_sim::fault::Fault;
use mandate_sim::link::LinkModel;
use mandate_sim::member;
use mandate_sim::pole::MemberConfig;
use mandate_sim::subject::{Moment, Observation, SimulationObserver};
use mandate_sim::time::SimTime;
use mandate_sim::world::{Machinery, World};

/// How a group is set up.
pub(crate) struct Setup {
    pub(crate) size: usize,
    pub(crate) guarantee: PeerGuarantee,
    pub(crate) oracle: &'static str,
    pub(crate) histories: Vec<u64>,
    /// Milliseconds from member to member.
    pub(crate) one_way: u64,
}

pub(crate) struct Script {
    world: World<Member, Scribe>,
}

#[derive(Default)]
struct Scribe {
    text: String,
    is_quiet: bool,
    /// When the script began.
    began: SimTime,
    beaten: Vec<(MemberId, String)>,
}

impl Script {
    /// A group that starts now.
    pub(crate) fn new(setup: Setup) -> Self {
        let hosts = (0..setup.size).map(|host| {
            let interval = Duration::from_millis(300);
            let members = (0..setup.size).map(member);
            let config = Config::new(member(host), members, interval, interval * 3)
                .and_then(|config| config.with_guarantee(setup.guarantee))
                .and_then(|config| config.with_timeout(Duration::from_millis(500)))
                .map(|config| config.with_oracle(setup.oracle.parse().unwrap()))
                .unwrap();
            let history = Some(setup.histories.get(host).copied().unwrap_or(1));
            let figures = Figures { history, requests: 0.0, application: None };
            (
                MemberConfig {
                    config,
                    edited: None,
                    is_upgraded: false,
                    joins: false,
                    figures,
                    mutant: None,
                },
                HostClocks::new(0),
            )
        });
        let links = LinkModel::perfect(Duration::from_millis(setup.one_way));
        let mut world = World::new(1, hosts, links, Machinery::IDEAL, Scribe::default());
        world.start_all();
        Script { world }
    }

    /// A group that has had a leader for a while.
    pub(crate) fn settled(setup: Setup) -> Self {
        let mut script = Script::new(setup);
        script.world.observer.text.clear();
        script.run_quietly_for(5000);
        script
    }

    pub(crate) fn run_for(&mut self, ms: u64) {
        self.world.run_until(self.world.now() + Duration::from_millis(ms));
    }

    pub(crate) fn run_quietly_for(&mut self, ms: u64) {
        self.world.observer.is_quiet = true;
        self.run_for(ms);
        self.world.observer.is_quiet = false;
        self.world.observer.began = self.world.now();
    }

    /// What happened before the script begins.
    pub(crate) fn quietly(&mut self, fault: Fault, ms: u64) {
        self.world.observer.is_quiet = true;
        self.fault(fault);
        self.run_quietly_for(ms);
    }

    pub(crate) fn note(&mut self, text: &str) {
        let scribe = &mut self.world.observer;
        scribe.text += &format!("{}# {text}\n", if scribe.text.is_empty() { "" } else { "\n" });
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        self.world.inject(fault);
    }

    pub(crate) fn tell(&mut self, host: usize, input: Input) {
        let (now, id) = (self.world.now(), member(host));
        self.world.observer.line(now, &format!("{id} is told {}", told(&input)));
        self.world.tell(host, input);
    }

    pub(crate) fn text(&self) -> String {
        self.world.observer.text.clone()
    }
}

impl Scribe {
    fn line(&mut self, now: SimTime, what: &str) {
        if !self.is_quiet {
            let at = (now - self.began).as_micros() as f64 / 1000.0;
            let _ = writeln!(self.text, "{at:>7.1} ms  {what}");
        }
    }
}

impl SimulationObserver<Member> for Scribe {
    fn observe(&mut self, moment: Moment, what: &Observation<'_, Member>) {
        let id = member(moment.host);
        let line = match what {
            Observation::Faulted(fault) => format!("*** {fault}"),
            Observation::Durable(stored) => format!("{id} writes  {}", on_disk(&stored.promised)),
            Observation::Told(event) => match event_text(event) {
                Some(text) => format!("{id} {text}"),
                None => return,
            },
            Observation::Sent(message) => match message_text(message) {
                // A heartbeat is of interest once.
                Some(text) if matches!(message, Message::Heartbeat { .. }) => {
                    if self.beaten.contains(&(id, text.clone())) {
                        return;
                    }
                    self.beaten.push((id, text.clone()));
                    format!("{id} sends   {text}")
                }
                Some(text) => format!("{id} sends   {text}"),
                None => return,
            },
            _ => return,
        };
        self.line(moment.now, &line);
    }
}

fn told(input: &Input) -> &'static str {
    match input {
        Input::LinkBroken { .. } => "that its connection to the leader broke",
        Input::Resign => "to resign",
        Input::Transfer { .. } => "to hand over",
        Input::Figures(_) => "new figures",
        Input::Publish(_) => "to publish a value",
        _ => "something",
    }
}

fn leader_text(to: Option<MemberId>) -> String {
    to.map_or("nobody".into(), |to| to.to_string())
}

fn on_disk(promised: &Promised) -> String {
    let recovered = match promised {
        Promised { recovered: true, .. } => " (recovered)",
        Promised { released: true, .. } => " (released)",
        _ => "",
    };
    format!("term {} promised to {}{recovered}", promised.term, leader_text(promised.to))
}

fn event_text(event: &Event) -> Option<String> {
    Some(match event {
        Event::Changed(State::Electing) => "         has no leader".into(),
        Event::Changed(State::Following { leader, term }) => {
            format!("         FOLLOWS {leader} in term {term}")
        }
        Event::Changed(State::Leading { term }) => format!("         LEADS in term {term}"),
        Event::Published { leader, term, value } => {
            format!("         SHOWS {value:?} of {leader} in term {term}")
        }
        Event::Suspected { member, suspected: true } => format!("         suspects {member}"),
        Event::Suspected { member, .. } => format!("         trusts {member} again"),
        Event::Recovered => "         has a vote again".into(),
        Event::Elected(record) => record_text(record),
        other => format!("         {other:?}"),
    })
}

fn record_text(record: &Record) -> String {
    let Record { cause, ended, selection, installation, .. } = record;
    let order: Vec<_> =
        record.ranking.candidates.iter().map(|candidate| candidate.id.to_string()).collect();
    let ended = ended.map_or("heard of it".into(), |ended| format!("{ended:?}"));
    format!(
        "         records {cause:?}, order [{}], ended by {ended}, {selection:?} + {installation:?}",
        order.join(" ")
    )
}

fn message_text(message: &Message) -> Option<String> {
    Some(match message {
        Message::Ping { .. } | Message::Pong { .. } => return None,
        Message::Heartbeat { term, .. } => format!("heartbeats of term {term}"),
        Message::Selection(selection::Message::Propose { epoch, own, best }) => {
            let best = best.map_or("nobody".into(), |best| format!("{} {:?}", best.id, best.score));
            format!("propose epoch {epoch}, best {best}{}", own_text(own))
        }
        Message::Selection(selection::Message::Vote { epoch, leader }) => {
            format!("vote    {leader} leads since epoch {epoch}")
        }
        Message::Installation(message) => installation_text(message),
        Message::Handover { term, to, .. } => {
            format!("hands   term {term} over to {to}, and says why")
        }
        Message::Value { term, value, .. } => format!("value   {value:?} of term {term}"),
        Message::ValueTaken { term, .. } => format!("taken   the value of term {term}"),
        Message::Request { term, request, .. } => {
            format!("asks    the leader of term {term}: {request:?}")
        }
        Message::Answer { answer, .. } => format!("answers {answer:?}"),
    })
}

fn own_text(own: &Candidacy) -> String {
    match own {
        Ok(_) => String::new(),
        Err(reason) => format!(" (itself {reason})"),
    }
}

fn installation_text(message: &installation::Message) -> String {
    use installation::Message as M;
    match message {
        M::Claim { term, freed, .. } => match freed {
            Some(freed) => {
                format!("claim   term {term} (term {} is free of {})", freed.term, freed.by)
            }
            None => format!("claim   term {term}"),
        },
        M::Promise { term, .. } => format!("promise term {term}"),
        M::Follow { term, .. } => format!("follow  term {term}"),
        M::Refuse { term, promised } => format!("refuse  term {term}, promised {promised}"),
        M::Release { term, next, .. } => match next {
            Some(next) => format!("release term {term}, next is {next}"),
            None => format!("release term {term}"),
        },
        M::Ask { .. } => "ask     what was promised?".into(),
        M::Report { promised, .. } => {
            format!("report  {}", promised.map_or("nothing".into(), |promised| on_disk(&promised)))
        }
        M::Unsure { .. } => "unsure  I have found no state, and never voted".into(),
        M::Founded { promised, .. } => {
            format!("founded I know with whom, and promised {}", on_disk(promised))
        }
        M::Behind { term } => format!("behind  you had promised term {term}"),
        M::Roster { roster, .. } => format!("members {} (list {})", roster, roster.id()),
    }
}
