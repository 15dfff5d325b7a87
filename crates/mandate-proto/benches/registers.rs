//! Instruction counts of an election on a database: what a member does for a look, a leader for a
//! renewal, and for a sweep of a thousand members; statements are answered at once.

// What gungraun's macros expand to is neither documented nor silent.
#![allow(missing_docs, clippy::disallowed_macros)]

use std::hint::black_box;
use std::time::Duration;

use gungraun::prelude::*;
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::machine::{Effects, Machine};
use mandate_proto::registers::{
    Config, ControlState, DatabaseAnswer, Effect, Holder, Input, Member, MemberRow, PROTOCOL,
    Published, Reason, Statement, StatementOutcome, StayId, Version,
};
use mandate_proto::time::Instant;

const STATEMENTS: usize = 1_000;
const MEMBERS: u32 = 1_000;

/// A member, and a database that answers at once.
struct Pair {
    member: Member,
    row: ControlState,
    sweeps: usize,
    now: Instant,
    effects: Effects<Effect>,
}

fn holder(id: u32) -> Holder {
    Holder { member: MemberId::new(id), incarnation: StayId::new(u64::from(id)) }
}

impl Pair {
    /// Member p1, where `leader` leads.
    fn new(leader: Option<u32>) -> Self {
        let config = Config::lan(MemberId::new(1));
        let published = Published {
            successors: [MemberId::new(1)].into_iter().collect(),
            round: config.round(),
            lease: config.lease(config.round()),
            guarantee: config.guarantee(),
        };
        let row = ControlState {
            protocol: PROTOCOL,
            version: Version { term: Term::new(1), beat: 0 },
            leader: leader.map(holder),
            reason: Reason::Silence,
            published,
            preferred: None,
        };
        let mut effects = Effects::new();
        let member = Member::start(config, 7, Instant::ORIGIN, &mut effects);
        let mut pair = Pair { member, row, sweeps: 0, now: Instant::ORIGIN, effects };
        pair.run(20);
        pair
    }

    fn answer(&mut self, statement: &Statement) -> DatabaseAnswer {
        match statement {
            Statement::Join { .. } => {
                DatabaseAnswer::Joined { incarnation: StayId::new(1), row: self.row, value: None }
            }
            Statement::Takeover { me, term, publish, .. } => {
                self.row.version = Version { term: *term, beat: 0 };
                self.row.leader = Some(*me);
                self.row.published = *publish;
                DatabaseAnswer::Control { changed: true, row: Some(self.row), value: None }
            }
            Statement::Sweep { .. } => {
                self.sweeps += 1;
                let counter = self.sweeps as u64;
                let row = |id| {
                    let score = self.member.score();
                    MemberRow { holder: holder(id), counter, score, was_evicted: false }
                };
                DatabaseAnswer::Members((1..=MEMBERS).map(row).collect())
            }
            _ => {
                // The leader has renewed.
                self.row.version.beat += 1;
                DatabaseAnswer::Control { changed: true, row: Some(self.row), value: None }
            }
        }
    }

    /// So many statements, from asking to answer.
    fn run(&mut self, statements: usize) {
        let mut done = 0;
        while done < statements {
            if let Some(effect) = self.effects.pop() {
                if let Effect::Execute { id, statement } = effect {
                    let outcome = StatementOutcome::Answered(self.answer(&statement));
                    let input = black_box(Input::Answered { id, outcome });
                    self.member.handle(input, self.now, &mut self.effects);
                    done += 1;
                }
                continue;
            }
            self.now = self.now.max(self.member.deadline().unwrap()) + Duration::from_nanos(1);
            self.member.handle_timeout(self.now, &mut self.effects);
        }
    }
}

#[library_benchmark]
#[bench::following(Pair::new(Some(2)))]
#[bench::leading_a_thousand(Pair::new(None))]
fn a_thousand_statements(mut pair: Pair) -> Pair {
    pair.run(STATEMENTS);
    pair
}

library_benchmark_group!(name = registers, benchmarks = [a_thousand_statements]);
main!(library_benchmark_groups = registers);
