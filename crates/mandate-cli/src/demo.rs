//! `mandate demo`: five simulated members, live in the terminal.
//!
//! The members run the real protocol in the simulator, whose clock is let run at the speed of
//! life. What befalls them is a script; how they take it is not.

use std::collections::VecDeque;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use console::{Term, style};
use mandate_proto::identity::MemberId;
use mandate_proto::nfd_l::{Config, Event, NfdL, Reason};
use mandate_sim::clock::Clock;
use mandate_sim::fault::{DiskFate, Fault};
use mandate_sim::link::{Delay, LinkModel};
use mandate_sim::nfd_l::MemberConfig;
use mandate_sim::subject::{Moment, Observation, Observer};
use mandate_sim::time::SimTime;
use mandate_sim::world::{Machinery, World};
use mandate_sim::{host_of, member};
use serde::Serialize;

use crate::args::DemoArgs;
use crate::exit::Exit;
use crate::output::{self, Format, readable};

const MEMBERS: usize = 5;
const INTERVAL: Duration = Duration::from_millis(200);
const DETECT: Duration = Duration::from_millis(700);
/// Ten pictures a second.
const FRAME: Duration = Duration::from_millis(100);
/// Lines of history under the picture, if the terminal has room for them.
const HISTORY: usize = 14;
const LENGTH: Duration = Duration::from_secs(27);

/// What befalls the group, and when.
#[derive(Clone, Copy)]
enum Scene {
    CrashLeader,
    RecoverCrashed,
    CutOffLeader,
    Heal,
    PauseLeader,
    ResumePaused,
}

const SCRIPT: [(u64, Scene); 6] = [
    (3_000, Scene::CrashLeader),
    (7_000, Scene::RecoverCrashed),
    (11_000, Scene::CutOffLeader),
    (16_000, Scene::Heal),
    (19_000, Scene::PauseLeader),
    (23_000, Scene::ResumePaused),
];

pub(crate) fn run(args: &DemoArgs, format: Format) -> anyhow::Result<Exit> {
    let mut demo = Demo::new(args.seed);
    let mut screen = Screen::new(format);
    let began = Instant::now();
    let mut script = SCRIPT.iter().peekable();
    let mut shown = Duration::ZERO;
    while shown < LENGTH {
        shown += FRAME;
        while let Some((at, scene)) = script.next_if(|(at, _)| Duration::from_millis(*at) <= shown)
        {
            demo.world.run_until(SimTime::ZERO + Duration::from_millis(*at));
            demo.play(*scene);
        }
        demo.world.run_until(SimTime::ZERO + shown);
        screen.show(&mut demo, shown)?;
        let due = shown.div_f64(args.speed);
        thread::sleep(due.saturating_sub(began.elapsed()));
    }
    if format == Format::Text {
        output::print(demo.epilogue())?;
    }
    Ok(Exit::Success)
}

/// The group, and what has become of it.
struct Demo {
    world: World<NfdL, Chronicle>,
    victim: Option<MemberId>,
    paused: Option<MemberId>,
}

impl Demo {
    fn new(seed: u64) -> Self {
        let link = LinkModel {
            delay: Delay::Pareto { min: Duration::from_millis(4), shape: 3.0 },
            max_delay: Duration::from_millis(200),
            loss: 0.01,
            ..LinkModel::perfect(Duration::ZERO)
        };
        let hosts = (0..MEMBERS).map(|host| {
            let config = Config::new(member(host), INTERVAL, DETECT).expect("there is a margin");
            (MemberConfig { config, mutant: None }, Clock::new(0))
        });
        let machinery = Machinery { lateness: Duration::from_millis(2), ..Machinery::IDEAL };
        let mut world = World::new(seed, hosts, link, machinery, Chronicle::default());
        world.observer.scene(SimTime::ZERO, "five members start");
        world.start_all();
        Demo { world, victim: None, paused: None }
    }

    /// Whom most members name.
    fn leader(&self) -> Option<MemberId> {
        let outputs: Vec<_> = self.outputs().into_iter().flatten().collect();
        let votes = |leader: &&MemberId| outputs.iter().filter(|other| other == leader).count();
        outputs.iter().max_by_key(votes).copied()
    }

    fn outputs(&self) -> Vec<Option<MemberId>> {
        (0..MEMBERS).map(|host| self.world.machine(host)?.leader()).collect()
    }

    fn play(&mut self, scene: Scene) {
        let Some(leader) = self.leader() else { return };
        let (text, fault) = match (scene, self.victim, self.paused) {
            (Scene::CrashLeader, ..) => {
                self.victim = Some(leader);
                (format!("{leader}, the leader, crashes"), Fault::Crash(host_of(leader)))
            }
            (Scene::RecoverCrashed, Some(victim), _) => {
                let host = host_of(victim);
                let fault = Fault::Recover { host, disk: DiskFate::Kept };
                (format!("{victim} comes back, and unseats nobody"), fault)
            }
            (Scene::CutOffLeader, ..) => {
                let host = host_of(leader);
                let companion = (host + 1) % MEMBERS;
                let side = 1 << host | 1 << companion;
                let names = format!("{leader} and {}", member(companion));
                (format!("{names} are cut off from the others"), Fault::Partition(side))
            }
            (Scene::Heal, ..) => ("the network heals; the senior leader stays".into(), Fault::Heal),
            (Scene::PauseLeader, ..) => {
                self.paused = Some(leader);
                (format!("{leader}, the leader, is paused"), Fault::Pause(host_of(leader)))
            }
            (Scene::ResumePaused, _, Some(paused)) => {
                (format!("{paused} runs on, and listens first"), Fault::Resume(host_of(paused)))
            }
            (Scene::RecoverCrashed | Scene::ResumePaused, ..) => return,
        };
        let now = self.world.now();
        self.world.observer.scene(now, &text);
        self.world.inject(fault);
    }

    fn epilogue(&self) -> String {
        let failover = self.world.observer.failovers.iter().max().map_or(String::new(), |slowest| {
            let slowest = readable(*slowest);
            format!("A lost leader was replaced within {slowest}; a crash is noticed within 700ms.\n")
        });
        let messages = self.world.counts().messages;
        format!(
            "\n{failover}{messages} messages in all: only a leader sends.\n\n\
             Next:  mandate qos plan --help      failure detection by what is wanted\n\
             \x20      mandate sim --seeds 10000    the same protocol under thousands of storms\n\
             \x20      mandate lab nfd-l            the paper's evaluation, reproduced"
        )
    }
}

/// What has happened, told as it happens.
#[derive(Default)]
struct Chronicle {
    news: VecDeque<News>,
    /// When the leader was lost, until someone else leads.
    lost: Option<SimTime>,
    failovers: Vec<Duration>,
}

#[derive(Clone, Serialize)]
struct News {
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<String>,
    what: String,
    #[serde(skip)]
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Scene,
    Leads,
    Other,
}

impl Chronicle {
    fn scene(&mut self, now: SimTime, what: &str) {
        let seconds = now.since_start().as_secs_f64();
        self.news.push_back(News { seconds, member: None, what: what.into(), kind: Kind::Scene });
    }
}

impl Observer<NfdL> for Chronicle {
    fn observe(&mut self, moment: Moment, what: &Observation<'_, NfdL>) {
        let own = member(moment.host);
        let (what, kind) = match what {
            Observation::Faulted(Fault::Crash(_) | Fault::Pause(_)) => {
                self.lost = Some(moment.now);
                return;
            }
            Observation::Told(Event::LeaderChanged { leader, reason }) => match leader {
                Some(leader) if *leader == own => {
                    let took = self.lost.take().map(|lost| moment.now - lost);
                    self.failovers.extend(took);
                    let took = took.map_or(String::new(), |t| format!(", {} later", readable(t)));
                    (format!("leads: {}{took}", because(*reason)), Kind::Leads)
                }
                Some(leader) => (format!("follows {leader}: {}", because(*reason)), Kind::Other),
                None => (format!("listens: {}", because(*reason)), Kind::Other),
            },
            Observation::Told(Event::LeaderRestarted { leader }) => {
                (format!("sees that {leader} was restarted"), Kind::Other)
            }
            _ => return,
        };
        let seconds = moment.now.since_start().as_secs_f64();
        self.news.push_back(News { seconds, member: Some(own.to_string()), what, kind });
    }
}

fn because(reason: Reason) -> &'static str {
    match reason {
        Reason::Heard => "it hears a leader",
        Reason::NoneHeard => "it hears nobody",
        Reason::Silence => "its leader fell silent",
        Reason::Seniority => "that one has led longer, or has the higher id",
        Reason::Priority => "by priority",
        Reason::Stalled => "it could not send for too long",
    }
}

/// Where it is shown: a picture that is redrawn, lines, or JSON lines.
struct Screen {
    term: Option<Term>,
    format: Format,
    history: VecDeque<String>,
    drawn: usize,
}

impl Screen {
    fn new(format: Format) -> Self {
        let term = Term::stdout();
        let live = format == Format::Text && term.is_term();
        Screen { term: live.then_some(term), format, history: VecDeque::new(), drawn: 0 }
    }

    fn show(&mut self, demo: &mut Demo, shown: Duration) -> anyhow::Result<()> {
        while let Some(news) = demo.world.observer.news.pop_front() {
            match (self.format, &self.term) {
                (Format::Json, _) => output::print_json_line(&news)?,
                (Format::Text, None) => output::print(line(&news))?,
                (Format::Text, Some(_)) => {
                    self.history.push_back(line(&news));
                    if self.history.len() > HISTORY {
                        self.history.pop_front();
                    }
                }
            }
        }
        self.draw(demo, shown)?;
        Ok(())
    }

    fn draw(&mut self, demo: &Demo, shown: Duration) -> io::Result<()> {
        let Some(term) = &self.term else { return Ok(()) };
        let mut lines = vec![format!(
            "{}   five members, heartbeats every 200 ms   {:>5.1} s of {} s",
            style("Mandate").bold(),
            shown.as_secs_f64(),
            LENGTH.as_secs()
        )];
        lines.extend((0..MEMBERS).map(|host| portrait(&demo.world, host)));
        lines.push(String::new());
        let (height, width) = term.size();
        // A picture taller than the terminal could not be redrawn in place.
        let room = usize::from(height).saturating_sub(lines.len() + 1);
        lines.extend(self.history.iter().skip(self.history.len().saturating_sub(room)).cloned());
        let width = width.into();
        let lines = lines.iter().map(|line| console::truncate_str(line, width, "").into_owned());
        let lines: Vec<_> = lines.collect();
        term.clear_last_lines(self.drawn)?;
        self.drawn = lines.len();
        term.write_line(&lines.join("\n"))
    }
}

fn line(news: &News) -> String {
    let text = match &news.member {
        Some(member) => format!("{:7.2} s  {member} {}", news.seconds, news.what),
        None => format!("{:7.2} s  -- {} --", news.seconds, news.what),
    };
    match news.kind {
        Kind::Scene => style(text).yellow().to_string(),
        Kind::Leads => style(text).green().to_string(),
        Kind::Other => text,
    }
}

/// One member's line in the picture.
fn portrait(world: &World<NfdL, Chronicle>, host: usize) -> String {
    let name = member(host);
    let Some(machine) = world.machine(host) else {
        return format!("  {name}  {}", style("down").red());
    };
    let paused = if world.runs(host) { "" } else { "  (paused)" };
    let text = match (machine.leads_since(), machine.leader()) {
        (Some(since), _) => {
            let reign = readable(Duration::from_millis(
                (world.local_time(host) - since).as_millis() as u64 / 100 * 100,
            ));
            style(format!("LEADS, for {reign}")).green().bold().to_string()
        }
        (None, Some(leader)) => format!("follows {leader}"),
        (None, None) => style("listens").dim().to_string(),
    };
    format!("  {name}  {text}{}", style(paused).red())
}
