//! `mandate lab quality`: how fast and how surely real daemons notice that their leader is dead.
//!
//! Members on an emulated network with the loss and the variance of delay of the NFD-L paper's link. At random times
//! the host of the leader dies, so that nothing tells the others but silence. Two views of the same:
//!
//! - what the *members themselves* report of it, in `/v1/status`, `/metrics` and on their pages: detection times counted
//!   from the last sign of life, and mistakes (who was suspected and is heard again in the same incarnation);
//! - what *this program* sees, which knows when it injected the fault: the time until a member names the dead leader no more.
//!
//! Wanted is what members are configured for: a crash noticed within a second, a mistake an hour at most, a second
//! long at most, as the paper has it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::value_parser;
use mandate_lab::nfd_l::{LOSS, VARIANCE};
use mandate_proto::detector::quartiles::Quartiles;
use mandate_proto::identity::MemberId;
use mandate_sim::random::{Random, Stream};
use serde::Serialize;

use mandate_cli::args::positive_duration;
use mandate_cli::exit::Exit;
use mandate_cli::node::chronicle::{EntryKind, now_ms};
use mandate_cli::node::quality::QualityDocument;
use mandate_cli::output::{self, Format};

mod daemons;

use daemons::{Daemons, Said};

/// What members are configured for: a crash is noticed within.
const DETECT_MS: f64 = 1000.0;

/// Mistakes are at least this far apart, on average over members (T_MR), and last at most so long (T_M).
const MISTAKE_EVERY_S: f64 = 3600.0;
const MISTAKE_LASTS_MS: f64 = 1000.0;

/// The round trip on the link; the paper's is that of a local network, too short for its own variance where order
/// is kept.
const ROUND_TRIP_MS: f64 = 20.0;

/// What a suspicion takes to be seen here: a wake-up, a message over HTTP, a whole millisecond for rounding.
const SEEING_MS: f64 = 20.0;

/// How long a host that died stays away.
const AWAY: Duration = Duration::from_secs(3);

/// After a crash a leader must be there, and known to all, within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Real daemons on an emulated network, of which the leader's host dies at random; needs root.
#[derive(Debug, clap::Args)]
pub(crate) struct QualityArgs {
    /// What leaders rely on.
    #[arg(long, value_enum, default_value_t)]
    guarantee: Promise,
    /// How long to watch.
    #[arg(long, default_value = "30min", value_parser = positive_duration, value_name = "TIME")]
    time: Duration,
    /// Mean time between two crashes of the leader's host.
    #[arg(long, default_value = "60s", value_parser = positive_duration, value_name = "TIME")]
    crash_every: Duration,
    /// How many members.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(3..=9), value_name = "N")]
    members: u32,
    /// When crashes happen, and loss and jitter, are drawn from it.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    seed: u64,
    /// Also print what one member has in /metrics at the end.
    #[arg(long)]
    metrics: bool,
}

/// What leaders rely on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Promise {
    /// At least one leader, eventually one: NFD-L.
    #[default]
    Overlap,
    /// One leader per term.
    Fenced,
    /// Besides, one at any instant.
    Leased,
}

impl Promise {
    /// The configuration of a group.
    fn tables(self) -> String {
        let election = match self {
            Promise::Overlap => "guarantee = \"overlap\"\n",
            Promise::Fenced => "guarantee = \"fenced\"\ntimeout = \"300ms\"\n",
            Promise::Leased => "guarantee = \"leased\"\nlease = \"1s\"\ntimeout = \"300ms\"\n",
        };
        format!(
            "[detection]\ninterval = \"330ms\"\nwithin = \"1s\"\nmistake_every = \"1h\"\nmistake_lasts = \"1s\"\n\n\
             [election]\n{election}"
        )
    }
}

#[derive(Serialize)]
struct Document {
    guarantee: String,
    loss: f64,
    delay_variance_ms2: f64,
    crashes: u32,
    /// From the crash until each member that followed named the dead leader no more; as seen here.
    seen_detection_ms: Option<Spread>,
    wanted_detection_ms: f64,
    reported: Reported,
    wanted_mistake_every_s: f64,
    wanted_mistake_lasts_ms: f64,
    holds: bool,
}

/// What members reported, all together.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Reported {
    /// For how long leaders were watched.
    watched_s: f64,
    detections: u64,
    /// The longest, from the last sign of life.
    detection_max_ms: f64,
    mistakes: u64,
    /// Mean time between mistakes of one member; none without a mistake.
    mistake_every_s: Option<f64>,
    mistake_lasts_ms: Option<f64>,
    /// Of the present links, on average.
    loss: f64,
    delay_sd_ms: f64,
    /// In force at the end.
    interval_ms: f64,
    links: u32,
}

#[derive(Serialize)]
struct Spread {
    first_quartile: f64,
    median: f64,
    third_quartile: f64,
    max: f64,
}

pub(crate) fn run(args: &QualityArgs, format: Format) -> anyhow::Result<Exit> {
    let mut daemons = Daemons::start(&links(), &args.guarantee.tables(), args.members, args.seed)?;
    let mut random = Random::new(args.seed, Stream::Faults);
    let mut measured = Measured::default();
    let bar = crate::progress::bar(args.time.as_secs(), "s");
    let began = Instant::now();
    daemons.agree(PATIENCE)?;
    loop {
        let left = args.time.saturating_sub(began.elapsed());
        let wait = random.exponential(args.crash_every).max(Duration::from_secs(5)).min(left);
        let until = Instant::now() + wait;
        while Instant::now() < until {
            sleep((until - Instant::now()).min(Duration::from_secs(1)));
            bar.set_position(began.elapsed().as_secs());
        }
        if began.elapsed() >= args.time {
            break;
        }
        measured.crash(&mut daemons)?;
    }
    bar.finish_and_clear();
    let at_last = daemons.agree(PATIENCE)?;
    for member in daemons.running() {
        measured.reported.add(&daemons.status(member)?.quality, true);
    }
    let document = measured.document(args);
    let holds = document.holds;
    match format {
        Format::Json => output::print_json(&document)?,
        Format::Text => output::print(text(&document))?,
    }
    if args.metrics {
        let follower = daemons.running().into_iter().find(|id| *id != at_last).unwrap_or(at_last);
        let page = daemons.page(follower, "/metrics")?;
        let of_quality = |line: &&str| line.starts_with("mandate_qos");
        let lines: Vec<_> = page.lines().filter(of_quality).collect();
        output::print(format!("\n{follower}:/metrics\n{}", lines.join("\n")))?;
    }
    Ok(if holds { Exit::Success } else { Exit::ClaimFailed })
}

/// The paper's link between all members, also those of one site.
fn links() -> String {
    let sites = crate::groups::chaos::environment::SITES;
    let jitter_ms = VARIANCE.sqrt() * 1000.0;
    let mut text = String::new();
    for (place, a) in sites.iter().enumerate() {
        for b in &sites[place..] {
            text += &format!(
                "[[rtt]]\na = '{a}'\nb = '{b}'\nms = {ROUND_TRIP_MS}\njitter_ms = {jitter_ms}\nloss = {LOSS}\n"
            );
        }
    }
    text
}

#[derive(Default)]
struct Measured {
    crashes: u32,
    detection_ms: Vec<f64>,
    reported: Reported,
}

impl Measured {
    /// Lets the leader's host die, sees who notices when, and brings it back.
    fn crash(&mut self, daemons: &mut Daemons) -> anyhow::Result<()> {
        let leader = daemons.agree(PATIENCE)?;
        // What it has to say dies with it.
        self.reported.add(&daemons.status(leader)?.quality, false);
        daemons.said();
        let crashed_at = now_ms();
        daemons.crash(leader)?;
        daemons.agree(PATIENCE)?;
        let said = daemons.said();
        for member in daemons.running() {
            self.detection_ms.extend(given_up(&said, member, leader, crashed_at));
        }
        self.crashes += 1;
        sleep(AWAY);
        daemons.revive(leader)?;
        daemons.agree(PATIENCE)?;
        Ok(())
    }

    fn document(self, args: &QualityArgs) -> Document {
        let mut reported = self.reported;
        reported.settle();
        let seen = spread(&self.detection_ms);
        let seen_in_time = seen.as_ref().is_none_or(|seen| seen.max <= DETECT_MS + SEEING_MS);
        // What chance explains proves nothing against a rate: up to two standard deviations more than it allows for.
        let allowed = reported.watched_s / MISTAKE_EVERY_S;
        let rarely = reported.mistakes as f64 <= (allowed + 2.0 * allowed.sqrt()).max(1.0);
        let shortly = reported.mistake_lasts_ms.is_none_or(|lasts| lasts <= MISTAKE_LASTS_MS);
        Document {
            guarantee: format!("{:?}", args.guarantee).to_lowercase(),
            loss: LOSS,
            delay_variance_ms2: VARIANCE * 1e6,
            crashes: self.crashes,
            seen_detection_ms: seen,
            wanted_detection_ms: DETECT_MS,
            reported,
            wanted_mistake_every_s: MISTAKE_EVERY_S,
            wanted_mistake_lasts_ms: MISTAKE_LASTS_MS,
            holds: seen_in_time && rarely && shortly,
        }
    }
}

impl Reported {
    /// Adds what a member has to say; of its present link only at the end.
    fn add(&mut self, said: &[QualityDocument], at_the_end: bool) {
        for quality in said {
            let measured = &quality.measured;
            self.watched_s += measured.watched_s;
            self.detections += measured.detections;
            let longest = measured.detection_max_ms.unwrap_or(0.0);
            self.detection_max_ms = self.detection_max_ms.max(longest);
            self.mistakes += measured.mistakes;
            if let Some(lasts) = measured.mistake_lasts_ms {
                // The sum, until it is settled.
                let all = lasts * measured.mistakes as f64;
                self.mistake_lasts_ms = Some(self.mistake_lasts_ms.unwrap_or(0.0) + all);
            }
            if let (true, Some(plan), Some(loss), Some(deviation)) =
                (at_the_end, &quality.plan, measured.loss, measured.delay_sd_ms)
            {
                self.links += 1;
                self.loss += loss;
                self.delay_sd_ms += deviation;
                self.interval_ms = plan.interval_ms;
            }
        }
    }

    /// From sums to means.
    fn settle(&mut self) {
        let links = f64::from(self.links.max(1));
        self.loss /= links;
        self.delay_sd_ms /= links;
        if self.mistakes > 0 {
            self.mistake_every_s = Some(self.watched_s / self.mistakes as f64);
            self.mistake_lasts_ms = self.mistake_lasts_ms.map(|sum| sum / self.mistakes as f64);
        }
    }
}

/// After how many milliseconds a member named this leader no more.
fn given_up(said: &[Said], member: MemberId, leader: MemberId, crashed_at: u64) -> Option<f64> {
    let leader = leader.to_string();
    let gives_up = |said: &&Said| match said.event.kind {
        EntryKind::Electing | EntryKind::Leading => true,
        EntryKind::Following => said.event.member.as_ref() != Some(&leader),
        _ => false,
    };
    let of_member =
        said.iter().filter(|said| said.member == member && said.event.at_ms >= crashed_at);
    of_member.filter(gives_up).map(|said| (said.event.at_ms - crashed_at) as f64).next()
}

fn spread(values: &[f64]) -> Option<Spread> {
    let quartiles = Quartiles::of(values.iter().copied())?;
    Some(Spread {
        first_quartile: quartiles.first,
        median: quartiles.median,
        third_quartile: quartiles.third,
        max: quartiles.max,
    })
}

fn text(document: &Document) -> String {
    let reported = &document.reported;
    let shown = |value: Option<f64>, unit: &str| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0} {unit}"))
    };
    let seen = document.seen_detection_ms.as_ref().map_or_else(
        || "none".into(),
        |s| {
            format!(
                "{:.0} / {:.0} / {:.0} ms (quartiles), at most {:.0}",
                s.first_quartile, s.median, s.third_quartile, s.max
            )
        },
    );
    format!(
        "{}; loss {:.2} %, variance of the delay {:.1} ms²; {} crashes, leaders watched for {:.0} s by all together\n\n  \
         link as measured         loss {:.2} %, delay ± {:.2} ms; a heartbeat every {:.0} ms\n  \
         detection, seen          {seen}; wanted {:.0} ms\n  \
         detection, reported      {} detections, at most {:.0} ms since the last sign of life\n  \
         mistakes, reported       {}, every {}; wanted every {:.0} s or more\n  \
         mistakes lasted          {}; wanted {:.0} ms at most\n\n{}",
        document.guarantee,
        document.loss * 100.0,
        document.delay_variance_ms2,
        document.crashes,
        reported.watched_s,
        reported.loss * 100.0,
        reported.delay_sd_ms,
        reported.interval_ms,
        document.wanted_detection_ms,
        reported.detections,
        reported.detection_max_ms,
        reported.mistakes,
        shown(reported.mistake_every_s, "s"),
        document.wanted_mistake_every_s,
        shown(reported.mistake_lasts_ms, "ms"),
        document.wanted_mistake_lasts_ms,
        if document.holds { "As wanted." } else { "NOT as wanted." }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_cli::node::chronicle::EventDocument;

    fn said(member: u32, at_ms: u64, kind: EntryKind, about: Option<&str>) -> Said {
        let event = EventDocument {
            id: None,
            at_ms,
            kind,
            text: String::new(),
            member: about.map(str::to_owned),
            term: None,
            value: None,
        };
        Said { member: MemberId::new(member), event }
    }

    #[test]
    fn a_crash_is_detected_when_its_leader_is_named_no_more() {
        let said = [
            said(1, 90, EntryKind::Electing, None),
            said(1, 110, EntryKind::Suspected, Some("p3")),
            said(2, 120, EntryKind::Electing, None),
            said(1, 130, EntryKind::Following, Some("p2")),
            said(1, 140, EntryKind::Following, Some("p3")),
            said(1, 150, EntryKind::Leading, None),
        ];
        let (me, leader) = (MemberId::new(1), MemberId::new(2));
        assert_eq!(given_up(&said, me, leader, 100), Some(40.0));
        assert_eq!(given_up(&said[..4], me, leader, 100), None);
    }

    #[test]
    fn mistakes_of_all_members_make_one_mean() {
        let quality = |mistakes, lasts| {
            serde_json::from_value(serde_json::json!({
                "member": null, "wanted": null, "unachievable": null, "plan": null,
                "measured": { "watched_s": 100.0, "mistakes": mistakes, "mistake_lasts_ms": lasts, "detections": 1,
                    "detection_max_ms": 700.0 },
            }))
            .unwrap()
        };
        let mut reported = Reported::default();
        reported.add(&[quality(1, Some(30.0))], true);
        reported.add(&[quality(3, Some(10.0))], false);
        reported.add(&[quality(0, None)], false);
        reported.settle();
        assert_eq!((reported.mistakes, reported.detections), (4, 3));
        assert_eq!(reported.mistake_every_s, Some(75.0));
        assert_eq!(reported.mistake_lasts_ms, Some(15.0));
    }
}
