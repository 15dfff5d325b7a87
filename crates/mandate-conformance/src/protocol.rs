//! The lines between a member and the harness.
//!
//! A member under test is a program. It reads orders from its standard input and writes reports to its
//! standard output, one a line, words separated by one space, flushed at each line. What it writes to
//! standard error is kept for people. It may be written in any language; this is all that it needs to know.
//!
//! **Arguments.** The harness adds to the command of the member: `--pace-us N`, the pause between two acts
//! in microseconds; `--register PATH`, if there is one, a Unix socket (see [`register`](crate::register));
//! `--careless`, if the member is to do what no member should: look at its mandate once, and then
//! believe it and act without end. With that the harness is tested.
//!
//! **Time** is nanoseconds on the clock that all processes of the host share and that counts suspension:
//! `CLOCK_BOOTTIME` on Linux.
//!
//! **Reports.**
//!
//! | line | meaning |
//! | --- | --- |
//! | `ready` | the member takes part; said first, once |
//! | `act TERM TIME` | it has acted: it read the clock, *then* asked its mandate, and that held. In this order: a member that is preempted between the two must not be taken for one that acted late |
//! | `refused TERM HIGHEST held` | after that act the register refused the term, since it has seen the higher one, and the mandate, asked again after the refusal, still held |
//! | `refused TERM HIGHEST over` | the same, and the mandate did not hold any more |
//! | `view TIME SEEN` | who leads, as the member sees it, has changed |
//! | `working TERM` | the work that `lead` waited to begin has begun |
//! | `done NUMBER ok` | an order was carried out; `status` adds words |
//! | `done NUMBER no REASON` | it was refused, and nothing has changed |
//! | `stopped` | the member has shut down in good order; the process ends |
//!
//! SEEN is `electing`, `following MEMBER TERM`, `leading TERM`, `jeopardy TERM` or `stopped`; a MEMBER is
//! written `p5`.
//!
//! **Orders** begin with a number, which the answer repeats. A member answers in the order in which it was
//! asked.
//!
//! | line | meaning | answer |
//! | --- | --- | --- |
//! | `N resign` | give leadership up; answered when the mandate does not hold any more | `ok` |
//! | `N transfer MEMBER` | hand it over; answered when that has begun | `ok`, `no REASON` |
//! | `N lead` | begin to wait for leadership, to work without end once it is had | `ok` at once |
//! | `N cancel` | drop what `lead` has begun, wherever it waits | `ok`, `no` if nothing was begun |
//! | `N publish VALUE` | publish a value of one word with the term that is held | `ok`, `no REASON` |
//! | `N value` | what the leader has published, as the member shows it | `ok`, `ok LEADER TERM VALUE` |
//! | `N status` | what the member knows | `ok SEEN suspects MEMBER ...` |
//! | `N figures HISTORY REQUESTS` | tell the oracle of this member | `ok` |
//! | `N change CHANGE` | change the members, as the leader: `add MEMBER ADDRESS`, `add MEMBER ADDRESS replaces MEMBER`, `observe MEMBER ADDRESS`, `promote MEMBER` or `remove MEMBER` | `ok LIST`, the number of the list that the member goes by, once a quorum has it on disk; `no refused: REASON` if nothing has changed; `no unknown: REASON`. Answers to other orders may come before |
//! | `N members` | the list of members that it goes by | `ok LIST settled MEMBER:PART ...` if it has said as the leader that the list is settled, else `ok LIST open MEMBER:PART ...`; the part is `voter`, `learner` or `observer`, and `>MEMBER` behind it names who leaves for it |
//! | `N stall MS` | let the engine not run for so many milliseconds, while what it has started beside itself does, and acts go on | `ok` at once |
//!
//! The end of the input, and SIGTERM, ask for a shutdown in good order.

use std::fmt;
use std::str::FromStr;

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::pole::installation::{Contact, MemberChange};

/// Who leads, as a member sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nobody.
    Electing,
    /// Another.
    Following {
        /// The member that it follows.
        leader: MemberId,
        /// In which term.
        term: Term,
    },
    /// This member.
    Leading {
        /// In which term.
        term: Term,
    },
    /// This member, while its lease nears its end.
    Jeopardy {
        /// In which term.
        term: Term,
    },
    /// It takes part no more.
    Stopped,
}

impl Seen {
    /// Whom it names as the leader, and in which term, if `me` is who sees it.
    pub fn leader(self, me: MemberId) -> Option<(MemberId, Term)> {
        match self {
            Seen::Following { leader, term } => Some((leader, term)),
            Seen::Leading { term } | Seen::Jeopardy { term } => Some((me, term)),
            Seen::Electing | Seen::Stopped => None,
        }
    }
}

/// What a member says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActorReport {
    /// It takes part.
    Ready,
    /// It has acted.
    Act {
        /// In this term.
        term: Term,
        /// When, just before its mandate said yes.
        at: u64,
    },
    /// The register has refused its write.
    Refused {
        /// Of this term.
        term: Term,
        /// Since it had seen this one.
        highest: Term,
        /// Whether the mandate held after the refusal.
        held: bool,
    },
    /// Who leads has changed.
    View {
        /// In nanoseconds, on the clock that all processes of the host share.
        at: u64,
        /// To what.
        seen: Seen,
    },
    /// The work that it was told to lead with has begun.
    Working {
        /// In this term.
        term: Term,
    },
    /// An order was carried out, or refused.
    Done {
        /// The order's number, as it was given.
        number: u64,
        /// What it came to.
        answer: Result<String, String>,
    },
    /// It has shut down.
    Stopped,
}

/// What a member is asked to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Instruction {
    /// Give leadership up.
    Resign,
    /// Hand it over.
    Transfer(MemberId),
    /// Begin to wait for leadership.
    Lead,
    /// Drop that.
    Cancel,
    /// Publish a value with its term.
    Publish(String),
    /// Say what the leader has published.
    Value,
    /// Say what it knows.
    Status,
    /// Tell the oracle.
    Figures {
        /// The position of its log.
        history: u64,
        /// Requests a second.
        requests: f64,
    },
    /// Let the engine not run for so many milliseconds.
    Stall(u64),
    /// Change the members.
    Change(MemberChange),
    /// Say who they are.
    Members,
}

/// A line that is no report and no order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{line}` is not a line of the protocol: {expected} was expected")]
pub struct InvalidLine {
    line: String,
    expected: &'static str,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Electing => f.write_str("electing"),
            Seen::Following { leader, term } => write!(f, "following {leader} {term}"),
            Seen::Leading { term } => write!(f, "leading {term}"),
            Seen::Jeopardy { term } => write!(f, "jeopardy {term}"),
            Seen::Stopped => f.write_str("stopped"),
        }
    }
}

impl fmt::Display for ActorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ActorReport::Ready => f.write_str("ready"),
            ActorReport::Act { term, at } => write!(f, "act {term} {at}"),
            ActorReport::Refused { term, highest, held } => {
                write!(f, "refused {term} {highest} {}", if *held { "held" } else { "over" })
            }
            ActorReport::View { at, seen } => write!(f, "view {at} {seen}"),
            ActorReport::Working { term } => write!(f, "working {term}"),
            ActorReport::Done { number, answer: Ok(text) } if text.is_empty() => {
                write!(f, "done {number} ok")
            }
            ActorReport::Done { number, answer: Ok(text) } => write!(f, "done {number} ok {text}"),
            ActorReport::Done { number, answer: Err(reason) } => {
                write!(f, "done {number} no {reason}")
            }
            ActorReport::Stopped => f.write_str("stopped"),
        }
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Instruction::Resign => f.write_str("resign"),
            Instruction::Transfer(to) => write!(f, "transfer {to}"),
            Instruction::Lead => f.write_str("lead"),
            Instruction::Cancel => f.write_str("cancel"),
            Instruction::Publish(value) => write!(f, "publish {value}"),
            Instruction::Value => f.write_str("value"),
            Instruction::Status => f.write_str("status"),
            Instruction::Figures { history, requests } => write!(f, "figures {history} {requests}"),
            Instruction::Stall(ms) => write!(f, "stall {ms}"),
            Instruction::Change(change) => write_change(change, f),
            Instruction::Members => f.write_str("members"),
        }
    }
}

fn write_change(change: &MemberChange, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match change {
        MemberChange::Add { member, contact, replaces } => {
            write!(f, "change add {member} {}", contact.address)?;
            replaces.map_or(Ok(()), |old| write!(f, " replaces {old}"))
        }
        MemberChange::Observe { member, contact } => {
            write!(f, "change observe {member} {}", contact.address)
        }
        MemberChange::Promote { member } => write!(f, "change promote {member}"),
        MemberChange::Remove { member } => write!(f, "change remove {member}"),
    }
}

fn change(words: &[&str]) -> Option<MemberChange> {
    let contact = |address: &str| Contact { name: String::new(), address: address.to_owned() };
    Some(match words {
        ["add", member, address] => MemberChange::Add {
            member: member.parse().ok()?,
            contact: contact(address),
            replaces: None,
        },
        ["add", member, address, "replaces", old] => MemberChange::Add {
            member: member.parse().ok()?,
            contact: contact(address),
            replaces: Some(old.parse().ok()?),
        },
        ["observe", member, address] => {
            MemberChange::Observe { member: member.parse().ok()?, contact: contact(address) }
        }
        ["promote", member] => MemberChange::Promote { member: member.parse().ok()? },
        ["remove", member] => MemberChange::Remove { member: member.parse().ok()? },
        _ => return None,
    })
}

impl FromStr for Seen {
    type Err = InvalidLine;

    fn from_str(text: &str) -> Result<Self, InvalidLine> {
        let invalid = |expected| InvalidLine { line: text.to_owned(), expected };
        let words: Vec<_> = text.split(' ').collect();
        Ok(match words[..] {
            ["electing"] => Seen::Electing,
            ["stopped"] => Seen::Stopped,
            ["following", leader, of] => Seen::Following {
                leader: leader.parse().map_err(|_| invalid("a member"))?,
                term: term(of).ok_or_else(|| invalid("a term"))?,
            },
            ["leading", of] => Seen::Leading { term: term(of).ok_or_else(|| invalid("a term"))? },
            ["jeopardy", of] => Seen::Jeopardy { term: term(of).ok_or_else(|| invalid("a term"))? },
            _ => return Err(invalid("who leads")),
        })
    }
}

impl FromStr for ActorReport {
    type Err = InvalidLine;

    fn from_str(line: &str) -> Result<Self, InvalidLine> {
        let invalid = |expected| InvalidLine { line: line.to_owned(), expected };
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<_> = rest.split(' ').collect();
        Ok(match (first, &words[..]) {
            ("ready", [""]) => ActorReport::Ready,
            ("stopped", [""]) => ActorReport::Stopped,
            ("act", [of, at]) => ActorReport::Act {
                term: term(of).ok_or_else(|| invalid("a term"))?,
                at: at.parse().map_err(|_| invalid("a time"))?,
            },
            ("refused", [of, highest, held @ ("held" | "over")]) => ActorReport::Refused {
                term: term(of).ok_or_else(|| invalid("a term"))?,
                highest: term(highest).ok_or_else(|| invalid("a term"))?,
                held: *held == "held",
            },
            ("view", [at, ..]) => ActorReport::View {
                at: at.parse().map_err(|_| invalid("a time"))?,
                seen: rest.split_once(' ').map_or("", |(_, seen)| seen).parse()?,
            },
            ("working", [of]) => {
                ActorReport::Working { term: term(of).ok_or_else(|| invalid("a term"))? }
            }
            ("done", [number, answer @ ("ok" | "no"), text @ ..]) => ActorReport::Done {
                number: number.parse().map_err(|_| invalid("a number"))?,
                answer: if *answer == "ok" { Ok(text.join(" ")) } else { Err(text.join(" ")) },
            },
            _ => return Err(invalid("a report")),
        })
    }
}

impl FromStr for Instruction {
    type Err = InvalidLine;

    fn from_str(line: &str) -> Result<Self, InvalidLine> {
        let invalid = |expected| InvalidLine { line: line.to_owned(), expected };
        let words: Vec<_> = line.split(' ').collect();
        Ok(match words[..] {
            ["resign"] => Instruction::Resign,
            ["lead"] => Instruction::Lead,
            ["cancel"] => Instruction::Cancel,
            ["publish", ref words @ ..] => Instruction::Publish(words.join(" ")),
            ["value"] => Instruction::Value,
            ["status"] => Instruction::Status,
            ["transfer", to] => Instruction::Transfer(to.parse().map_err(|_| invalid("a member"))?),
            ["figures", history, requests] => Instruction::Figures {
                history: history.parse().map_err(|_| invalid("a position"))?,
                requests: requests.parse().map_err(|_| invalid("a rate"))?,
            },
            ["stall", ms] => Instruction::Stall(ms.parse().map_err(|_| invalid("milliseconds"))?),
            ["change", ref words @ ..] => {
                Instruction::Change(change(words).ok_or_else(|| invalid("a change of members"))?)
            }
            ["members"] => Instruction::Members,
            _ => return Err(invalid("an order")),
        })
    }
}

fn term(text: &str) -> Option<Term> {
    text.parse().ok().map(Term::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contact() -> Contact {
        Contact { name: String::new(), address: "10.0.0.7:7100".into() }
    }

    #[test]
    fn reports_and_orders_are_read_as_they_were_written() {
        let (leader, term, highest) = (MemberId::new(2), Term::new(7), Term::new(9));
        let seen = [
            Seen::Electing,
            Seen::Following { leader, term },
            Seen::Leading { term },
            Seen::Jeopardy { term },
            Seen::Stopped,
        ];
        let reports = [
            ActorReport::Ready,
            ActorReport::Act { term, at: 5 },
            ActorReport::Refused { term, highest, held: true },
            ActorReport::Refused { term, highest, held: false },
            ActorReport::Working { term },
            ActorReport::Done { number: 1, answer: Ok(String::new()) },
            ActorReport::Done { number: 2, answer: Ok("electing suspects p1 p2".into()) },
            ActorReport::Done { number: 3, answer: Err("that member does not answer".into()) },
            ActorReport::Stopped,
        ];
        let views = seen.map(|seen| ActorReport::View { at: 8, seen });
        for report in reports.iter().chain(&views) {
            assert_eq!(report.to_string().parse().as_ref(), Ok(report));
        }
        let orders = [
            Instruction::Resign,
            Instruction::Transfer(leader),
            Instruction::Lead,
            Instruction::Cancel,
            Instruction::Publish("p2.7".into()),
            Instruction::Value,
            Instruction::Status,
            Instruction::Figures { history: 3, requests: 0.5 },
            Instruction::Stall(400),
            Instruction::Members,
            Instruction::Change(MemberChange::Remove { member: leader }),
            Instruction::Change(MemberChange::Observe { member: leader, contact: contact() }),
            Instruction::Change(MemberChange::Add {
                member: leader,
                contact: contact(),
                replaces: None,
            }),
            Instruction::Change(MemberChange::Add {
                member: leader,
                contact: contact(),
                replaces: Some(MemberId::new(1)),
            }),
        ];
        for order in orders {
            assert_eq!(order.to_string().parse().as_ref(), Ok(&order));
        }
    }

    #[test]
    fn other_lines_are_refused_with_what_was_expected() {
        for line in
            ["", "act", "act 1", "act x 1", "view 1", "view 1 leading", "done x ok", "ready x"]
        {
            assert!(line.parse::<ActorReport>().is_err(), "{line}");
        }
        for line in
            ["", "transfer", "transfer you", "resign now", "change", "change add p1", "members p1"]
        {
            assert!(line.parse::<Instruction>().is_err(), "{line}");
        }
        let error = "act 1 late".parse::<ActorReport>().unwrap_err().to_string();
        assert!(error.contains("act 1 late") && error.contains("a time"), "{error}");
    }
}
