//! What happens in the demo: orders are carried out, members are heard, and everything is told.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use mandate_proto::identity::MemberId;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::processes::{Condition, DemoProcesses, Line, PLACES, place};
use super::watcher::{Figures, Watcher};
use crate::output::{self, Format};

/// Lines that the page shows.
const STORY: usize = 100;

/// Requests a second to a member that was made busy.
const BUSY: f64 = 5000.0;

/// Something to be done to a member.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) member: MemberId,
    pub(super) act: Act,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Act {
    Kill,
    Pause,
    CutOff,
    Revive,
    /// Its clients ask so much.
    Score(Figures),
}

impl Act {
    pub(super) fn busy(figures: Figures) -> Self {
        Act::Score(Figures { requests: BUSY, ..figures })
    }

    pub(super) fn idle(figures: Figures) -> Self {
        Act::Score(Figures { requests: 0.0, ..figures })
    }
}

/// What came of a key.
pub(super) enum Pressed {
    Nothing,
    Order(Order),
    End,
}

/// What a member said of its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "part", content = "term")]
pub(super) enum Part {
    Electing,
    Following,
    Leading(u64),
}

/// Everything, as the page and the script see it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Scene {
    pub(super) seconds: f64,
    pub(super) leader: Option<String>,
    pub(super) term: Option<u64>,
    pub(super) members: Vec<MemberScene>,
    pub(super) story: VecDeque<StoryLine>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct MemberScene {
    #[serde(serialize_with = "as_text")]
    pub(super) id: MemberId,
    place: &'static str,
    /// Its own page.
    page: String,
    pub(super) condition: Condition,
    pub(super) part: Option<Part>,
    /// Whom it follows.
    pub(super) leader: Option<String>,
    latency: Option<String>,
    pub(super) figures: Figures,
}

fn as_text<S: serde::Serializer>(id: &MemberId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct StoryLine {
    id: u64,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<String>,
    text: String,
}

pub(super) struct DemoController {
    cast: DemoProcesses,
    watchers: BTreeMap<MemberId, Watcher>,
    apis: BTreeMap<MemberId, String>,
    parts: BTreeMap<MemberId, Part>,
    chosen: Option<MemberId>,
    /// The leader that was made to fail, and when, until another leads.
    faulted: Option<(MemberId, Instant)>,
    story: VecDeque<StoryLine>,
    told: u64,
    began: Instant,
    format: Format,
    scene: watch::Sender<Scene>,
}

impl DemoController {
    pub(super) fn new(cast: DemoProcesses, format: Format) -> Self {
        let watchers = cast.members().map(|(id, api)| (id, Watcher::start(api))).collect();
        let apis = cast.members().map(|(id, api)| (id, format!("http://{api}/"))).collect();
        DemoController {
            cast,
            watchers,
            apis,
            parts: BTreeMap::new(),
            chosen: None,
            faulted: None,
            story: VecDeque::new(),
            told: 0,
            began: Instant::now(),
            format,
            scene: watch::Sender::new(Scene::default()),
        }
    }

    pub(super) fn scene(&self) -> watch::Receiver<Scene> {
        self.scene.subscribe()
    }

    /// Who leads: of those that run and say so, the one with the highest term.
    fn leader(&self) -> Option<(MemberId, u64)> {
        let leading = self.parts.iter().filter_map(|(id, part)| match part {
            Part::Leading(term) if self.cast.condition(*id) == Condition::Running => {
                Some((*id, *term))
            }
            _ => None,
        });
        leading.max_by_key(|(_, term)| *term)
    }

    /// Takes note of what a member says, and tells what matters of it.
    pub(super) fn hear(&mut self, line: &Line) -> anyhow::Result<()> {
        let Line { member, text } = line;
        let part = match text.strip_prefix("LEADING in term ") {
            Some(term) => Some(Part::Leading(term.parse().unwrap_or_default())),
            None if text.starts_with("following ") => Some(Part::Following),
            None if text == "no leader" => Some(Part::Electing),
            None => None,
        };
        if let Some(part) = part {
            // Read late from one that is dead by now, it is not so any more.
            if self.cast.condition(*member) != Condition::Dead {
                self.parts.insert(*member, part);
            }
        }
        if let Some(Part::Leading(term)) = part {
            let later =
                self.faulted.take_if(|(who, _)| who != member).map_or(String::new(), |(_, at)| {
                    format!(", {:.2} s later", at.elapsed().as_secs_f64())
                });
            self.tell_of(*member, format!("leads in term {term}{later}"))?;
        } else if text.contains("would serve better") || text.starts_with("the move to ") {
            self.tell_of(*member, format!("says: {text}"))?;
        }
        self.publish();
        Ok(())
    }

    /// Carries an order out; what cannot be is told, and the demo goes on.
    pub(super) async fn obey(&mut self, order: Order) -> anyhow::Result<()> {
        let Order { member, act } = order;
        if !self.watchers.contains_key(&member) {
            return Ok(());
        }
        let leads = self.leader().is_some_and(|(leader, _)| leader == member);
        let was = self.cast.condition(member);
        let done = match act {
            Act::Kill => self.cast.kill(member).await.map(|()| "is killed (SIGKILL)".into()),
            Act::Pause if was == Condition::Paused => return Ok(()),
            Act::Pause => self.cast.pause(member).map(|()| "is paused (SIGSTOP)".into()),
            Act::CutOff => {
                self.cast.cut_off(member);
                Ok("is cut off from all others".into())
            }
            Act::Revive if was == Condition::Running => return Ok(()),
            Act::Revive => self.cast.revive(member).map(|()| "is back".into()),
            Act::Score(figures) => {
                self.watchers[&member].set_figures(figures);
                let Figures { requests, history } = figures;
                Ok(format!("gets {requests} requests a second; its log is at {history}"))
            }
        };
        if matches!(act, Act::Kill | Act::Pause | Act::CutOff) && done.is_ok() {
            if matches!(act, Act::Kill) {
                self.parts.remove(&member);
            }
            if leads {
                self.faulted = Some((member, Instant::now()));
            }
        }
        let who = if leads { ", the leader," } else { "" };
        match done {
            Ok(done) => self.tell_of(member, format!("{who} {done}"))?,
            Err(error) => self.tell_of(member, format!("{who} cannot be so: {error:#}"))?,
        }
        self.publish();
        Ok(())
    }

    /// What a key asks for.
    pub(super) fn press(&mut self, key: char) -> Pressed {
        if let Some(number) = key.to_digit(10) {
            let member = MemberId::new(number);
            self.chosen = self.watchers.contains_key(&member).then_some(member);
            return Pressed::Nothing;
        }
        let chosen = self.chosen.or(self.leader().map(|(leader, _)| leader));
        let figures = chosen.map_or(Figures::FIRST, |member| self.watchers[&member].figures());
        let act = match key {
            'q' | '\u{3}' | '\u{4}' => return Pressed::End,
            'l' => {
                self.chosen = None;
                return Pressed::Nothing;
            }
            'k' => Act::Kill,
            'p' => Act::Pause,
            'c' => Act::CutOff,
            'r' => Act::Revive,
            'b' => Act::busy(figures),
            'i' => Act::idle(figures),
            _ => return Pressed::Nothing,
        };
        chosen.map_or(Pressed::Nothing, |member| Pressed::Order(Order { member, act }))
    }

    /// Looks whether all is as it should be.
    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        while let Some((member, reason)) = self.cast.ended() {
            self.parts.remove(&member);
            self.tell_of(member, format!("has ended by itself: {reason}"))?;
        }
        self.publish();
        Ok(())
    }

    pub(super) fn tell(&mut self, text: impl Into<String>) -> anyhow::Result<()> {
        self.add(None, text.into())
    }

    fn tell_of(&mut self, member: MemberId, text: impl Into<String>) -> anyhow::Result<()> {
        self.add(Some(member), text.into())
    }

    fn add(&mut self, member: Option<MemberId>, text: String) -> anyhow::Result<()> {
        let text = match member {
            Some(id) if text.starts_with(',') => format!("{id} in {}{text}", PLACES[place(id)]),
            Some(id) => format!("{id} in {} {}", PLACES[place(id)], text.trim_start()),
            None => text,
        };
        self.told += 1;
        let member = member.map(|id| id.to_string());
        let line = StoryLine { id: self.told, seconds: self.seconds(), member, text };
        match self.format {
            Format::Text => output::print(format!("{:6.1} s  {}", line.seconds, line.text))?,
            Format::Json => output::print_json_line(&line)?,
        }
        self.story.push_front(line);
        self.story.truncate(STORY);
        Ok(())
    }

    fn seconds(&self) -> f64 {
        // To the millisecond: more is noise.
        (self.began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0
    }

    fn publish(&self) {
        let members = self.watchers.iter().map(|(id, watcher)| {
            let condition = self.cast.condition(*id);
            let answers = !matches!(condition, Condition::Dead | Condition::Paused);
            let status = watcher.status().filter(|_| answers);
            MemberScene {
                id: *id,
                place: PLACES[place(*id)],
                page: self.apis[id].clone(),
                condition,
                part: self.parts.get(id).copied().filter(|_| answers),
                leader: status.as_ref().and_then(|status| status.leader.clone()),
                latency: status.as_ref().and_then(|status| status.figures.get("latency").cloned()),
                figures: watcher.figures(),
            }
        });
        let leader = self.leader();
        self.scene.send_replace(Scene {
            seconds: self.seconds(),
            leader: leader.map(|(leader, _)| leader.to_string()),
            term: leader.map(|(_, term)| term),
            members: members.collect(),
            story: self.story.clone(),
        });
    }

    /// Ends everything.
    pub(super) async fn clear(mut self) -> anyhow::Result<()> {
        let lasted = self.began.elapsed();
        self.tell(format!(
            "the end, after {} s: all members are stopped, their files removed",
            seconds(lasted)
        ))?;
        self.cast.end().await
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.0}", duration.as_secs_f64())
}
